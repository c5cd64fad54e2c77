package redistest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// StartReplica starts a replica of a running server, as [Start] does. It returns when the replica is in sync. After a
// Restart the replica is empty and replicates again.
//
// Restart does not wait for replication. The replicas of a restarted master reconnect in about a second, and follow it
// even if it is empty: see [Server.WaitForReplicas].
func StartReplica(t testing.TB, of *Server, args ...string) *Server {
	t.Helper()
	s := newServer(t, append([]string{"--replicaof", "127.0.0.1", strconv.Itoa(of.run.Port)}, args...)...)
	start(t, s)
	of.WaitForReplicas(t, s)
	return s
}

// WaitForReplicas returns when each of the replicas has at least what the server had at the time of the call, and the
// server counts it.
func (s *Server) WaitForReplicas(t testing.TB, replicas ...*Server) {
	t.Helper()
	await(t, "replication of "+s.addr, func(ctx context.Context) error { return inSync(ctx, s, replicas...) })
}

// inSync returns nil if the replicas are connected to the master, have all that it had at the time of the call, and
// receive its further writes.
func inSync(ctx context.Context, master *Server, replicas ...*Server) error {
	of, err := master.replication(ctx)
	if err != nil {
		return err
	}
	if of["role"] != "master" {
		return fmt.Errorf("%s is no master but a %s", master.addr, of["role"])
	}
	had, _ := strconv.Atoi(of["master_repl_offset"])
	for _, s := range replicas {
		r, err := s.replication(ctx)
		if err != nil {
			return err
		}
		has, _ := strconv.Atoi(r["slave_repl_offset"])
		if net.JoinHostPort(r["master_host"], r["master_port"]) != master.addr || r["master_link_status"] != "up" || has < had {
			return fmt.Errorf("%s is not in sync with its master %s, which is at %d: %v", s.addr, master.addr, had, r)
		}
	}
	return master.query(ctx, func(ctx context.Context, c *redis.Client) error {
		conn := c.Conn()
		defer conn.Close()
		// A replica that has sent no acknowledgement yet receives nothing, but counts as one at offset 0.
		if err := conn.Publish(ctx, "redistest", "").Err(); err != nil || len(replicas) == 0 {
			return err
		}
		n, err := conn.Wait(ctx, len(replicas), 300*time.Millisecond).Result()
		if err == nil && n < int64(len(replicas)) {
			return fmt.Errorf("%d replicas of %s have acknowledged, of %d", n, master.addr, len(replicas))
		}
		return err
	})
}

// replication returns the section of INFO.
func (s *Server) replication(ctx context.Context) (fields map[string]string, err error) {
	err = s.query(ctx, func(ctx context.Context, c *redis.Client) error {
		info, err := c.InfoMap(ctx, "replication").Result()
		fields = info["Replication"]
		return err
	})
	return fields, err
}
