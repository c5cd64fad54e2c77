package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

// StartReplica starts a replica of a running server, as [Start] does. It returns when the replica is in sync. After a
// Restart the replica is empty and replicates again.
//
// Restart does not wait for replication. The replicas of a restarted master reconnect in about a second, and follow it
// even if it is empty: see [Server.WaitForReplicas].
func StartReplica(t testing.TB, of *Server, args ...string) *Server {
	t.Helper()
	s := newServer(t, append([]string{"--replicaof", "127.0.0.1", strconv.Itoa(of.port)}, args...)...)
	start(t, s)
	if err := await(func(ctx context.Context) error { return inSync(ctx, of, s) }); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return s
}

// WaitForReplicas returns when each of the replicas has at least what the server had at the time of the call, and the
// server counts it.
func (s *Server) WaitForReplicas(t testing.TB, replicas ...*Server) {
	t.Helper()
	err := await(func(ctx context.Context) error { return inSync(ctx, s, replicas...) })
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
}

// inSync returns nil if the replicas are connected to the master, have all that it had at the time of the call, and
// receive its further writes.
func inSync(ctx context.Context, master *Server, replicas ...*Server) error {
	of, err := master.role(ctx)
	if err != nil {
		return err
	}
	if of.name != "master" {
		return fmt.Errorf("%s is no master but a %s", master.addr, of.name)
	}
	for _, s := range replicas {
		r, err := s.role(ctx)
		if err != nil {
			return err
		}
		if r.name != "slave" || r.master != master.addr || r.state != "connected" {
			return fmt.Errorf("%s is not connected to its master %s: %+v", s.addr, master.addr, r)
		}
		if r.offset < of.offset || !of.replicas[s.addr] {
			return fmt.Errorf("the replica %s is not in sync: %+v, its master: %+v", s.addr, r, of)
		}
		if err := s.acknowledge(ctx); err != nil {
			return err
		}
	}
	return nil
}

// acknowledge makes a replica report its offset to its master. Until the first report, which can take a second, the
// master sends nothing to a new replica.
func (s *Server) acknowledge(ctx context.Context) error {
	conn, err := connect(ctx, s.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	// REPLCONF GETACK has no reply.
	_, err = conn.Write([]byte("*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n*1\r\n$4\r\nPING\r\n"))
	if err != nil {
		return err
	}
	pong, err := newSplitter(conn).reply()
	if err == nil && string(pong.raw) != "+PONG\r\n" {
		return fmt.Errorf("%s answers %q", s.addr, pong.raw)
	}
	return err
}

// role is the reply to ROLE.
type role struct {
	name     string // "master", "slave", "sentinel"
	offset   int64
	replicas map[string]bool // of a master: those that have completed the first synchronization
	master   string          // of a replica
	state    string          // of a replica: "connected", or a step before
}

func (s *Server) role(ctx context.Context) (r role, err error) {
	err = s.query(ctx, func(ctx context.Context, c *redis.Client) error {
		reply, err := c.Do(ctx, "ROLE").Slice()
		if err != nil {
			return err
		}
		r, err = parseRole(reply)
		return err
	})
	return r, err
}

var errRole = errors.New("redistest: unexpected reply to ROLE")

func parseRole(reply []any) (r role, err error) {
	if len(reply) == 0 {
		return r, errRole
	}
	r.name, _ = reply[0].(string)
	switch {
	case r.name == "master" && len(reply) == 3:
		r.offset, _ = reply[1].(int64)
		r.replicas = map[string]bool{}
		replicas, _ := reply[2].([]any)
		for _, replica := range replicas {
			if of, ok := replica.([]any); ok && len(of) == 3 {
				r.replicas[fmt.Sprintf("%v:%v", of[0], of[1])] = true
			}
		}
	case r.name == "slave" && len(reply) == 5:
		r.master = fmt.Sprintf("%v:%v", reply[1], reply[2])
		r.state, _ = reply[3].(string)
		r.offset, _ = reply[4].(int64)
	case r.name != "sentinel":
		return r, errRole
	}
	return r, nil
}
