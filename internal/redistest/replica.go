package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

// StartReplica runs a replica of a server that is up, as [Start] does, and
// returns when it has all that its master has, and the master counts it. It is
// a Server like any other: after a Restart it is empty and replicates again.
//
// Restart returns before that, and a master that was restarted is back with its
// replicas within a second or so, which follow it even if it is empty:
// see [Server.WaitForReplicas].
func StartReplica(t testing.TB, of *Server, args ...string) *Server {
	t.Helper()
	s := newServer(t, append([]string{"--replicaof", "127.0.0.1", strconv.Itoa(of.port)}, args...)...)
	start(t, s)
	if err := await(func(ctx context.Context) error { return inSync(ctx, of, s) }); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return s
}

// WaitForReplicas returns when each of the replicas has what the server had at
// the time of the call, or later, and the server counts it.
func (s *Server) WaitForReplicas(t testing.TB, replicas ...*Server) {
	t.Helper()
	err := await(func(ctx context.Context) error { return inSync(ctx, s, replicas...) })
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
}

// inSync returns nil if the replicas are linked to the master, have all that it
// had when this was called, and get what it writes from now on.
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

// acknowledge makes a replica tell its master how far it is. A master sends
// nothing to a replica that it has just called online until it hears from it,
// which can take a second.
func (s *Server) acknowledge(ctx context.Context) error {
	conn, err := connect(ctx, s.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	// The first one has no reply.
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

// role is what ROLE tells.
type role struct {
	name     string // "master", "slave", "sentinel"
	offset   int64
	replicas map[string]bool // of a master: those that have had their first copy
	master   string          // of a replica
	state    string          // of a replica: "connected", or what it is about
}

func (s *Server) role(ctx context.Context) (r role, err error) {
	err = s.glance(ctx, func(ctx context.Context, c *redis.Client) error {
		reply, err := c.Do(ctx, "ROLE").Slice()
		if err != nil {
			return err
		}
		r, err = parseRole(reply)
		return err
	})
	return r, err
}

var errRole = errors.New("redistest: ROLE answers something else")

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
