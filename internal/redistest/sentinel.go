package redistest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Sentinel is a master, its replicas, and one Sentinel process with a quorum of one. A server counts as down after half
// a second without an answer. An automatic failover takes one or two seconds, and the next can start 4 seconds after
// the last one.
type Sentinel struct {
	servers []*Server
	process *Server
}

const sentinelName = "main"

// StartSentinel starts a master, its replicas and a Sentinel. It returns when the replicas are in sync and Sentinel
// knows them. The master and each replica get args.
//
// Each of them has a configuration file, which Sentinel updates. So a Restart keeps the role of a server: a former
// master restarts as a second master until Sentinel demotes it, see [Sentinel.WaitForDemotion].
func StartSentinel(t testing.TB, replicas int, args ...string) *Sentinel {
	t.Helper()
	g := &Sentinel{}
	for range 1 + replicas {
		s := newServer(t, args...)
		s.configure(t, "redis.conf", "")
		g.servers = append(g.servers, s)
	}
	master, others := g.servers[0], g.servers[1:]
	start(t, master)
	for _, s := range others {
		s.configure(t, "redis.conf", fmt.Sprintf("replicaof 127.0.0.1 %d\n", master.run.Port))
	}
	start(t, others...)
	master.WaitForReplicas(t, others...)
	g.monitor(t, master)
	return g
}

// monitor starts the Sentinel process. It returns when Sentinel knows every server.
func (g *Sentinel) monitor(t testing.TB, master *Server) {
	t.Helper()
	g.process = newServer(t)
	g.process.configure(t, "sentinel.conf", fmt.Sprintf(""+
		"sentinel monitor %[1]s 127.0.0.1 %[2]d 1\n"+
		"sentinel down-after-milliseconds %[1]s 500\n"+
		"sentinel failover-timeout %[1]s 2000\n"+
		"sentinel parallel-syncs %[1]s 100\n",
		sentinelName, master.run.Port), "--sentinel")
	start(t, g.process)
	// Shorten the periods, which are up to 10 s, and 30 s after the machine was busy. The tests of Redis do the same.
	// Since Redis 7.0.
	g.process.do(t, "SENTINEL DEBUG", func(ctx context.Context, c *redis.Client) error {
		err := c.Do(ctx, "SENTINEL", "DEBUG", "INFO-PERIOD", 200, "PING-PERIOD", 100,
			"ASK-PERIOD", 100, "PUBLISH-PERIOD", 200, "TILT-PERIOD", 500).Err()
		if redis.HasErrorPrefix(err, "Unknown sentinel subcommand") {
			return nil
		}
		return err
	})
	await(t, "Sentinel on "+g.process.addr, g.knowsAll)
}

// knowsAll returns nil if Sentinel knows every server and considers it healthy.
func (g *Sentinel) knowsAll(ctx context.Context) error {
	return g.query(ctx, func(ctx context.Context, c *redis.SentinelClient) error {
		replicas, err := c.Replicas(ctx, sentinelName).Result()
		if err != nil {
			return err
		}
		if len(replicas) != len(g.servers)-1 {
			return fmt.Errorf("it knows %d replicas of %d", len(replicas), len(g.servers)-1)
		}
		for _, r := range replicas {
			if r["flags"] != "slave" || r["master-link-status"] != "ok" {
				return fmt.Errorf("the replica %s is %s, its link to the master %s", r["name"], r["flags"], r["master-link-status"])
			}
		}
		return nil
	})
}

// Servers returns all servers except the Sentinel, the initial master first.
func (g *Sentinel) Servers() []*Server { return slices.Clone(g.servers) }

// Master returns the server that Sentinel now names as the master, up or down.
func (g *Sentinel) Master(t testing.TB) (master *Server) {
	t.Helper()
	await(t, "Sentinel on "+g.process.addr, func(ctx context.Context) (err error) {
		master, err = g.master(ctx)
		return err
	})
	return master
}

// Client returns a failover client, which asks Sentinel for the master. It has go-redis's default options, changed by
// opts in order. The end of the test closes it.
func (g *Sentinel) Client(t testing.TB, opts ...func(*redis.FailoverOptions)) *redis.Client {
	t.Helper()
	o := &redis.FailoverOptions{MasterName: sentinelName, SentinelAddrs: []string{g.process.addr}}
	for _, opt := range opts {
		opt(o)
	}
	client := redis.NewFailoverClient(o)
	closeAfter(t, "the failover client", client)
	return client
}

// Failover makes Sentinel promote a replica. It returns the replica when Sentinel names it as the master. The old
// master is not informed at once: until it is demoted, it accepts writes, and they are lost. See
// [Sentinel.WaitForDemotion].
func (g *Sentinel) Failover(t testing.TB) *Server {
	t.Helper()
	from := g.Master(t)
	await(t, "SENTINEL FAILOVER from "+from.addr, func(ctx context.Context) error {
		return g.query(ctx, func(ctx context.Context, c *redis.SentinelClient) error {
			// On a busy machine Sentinel may find no suitable replica, even after it has replied OK. Then it gives up, and is
			// asked again. One reply must tell both who the master is and that nothing is in progress: a failover that ends
			// between two replies would be followed by a second one, back to from.
			state, err := c.Master(ctx, sentinelName).Result()
			switch {
			case err != nil:
				return err
			case net.JoinHostPort(state["ip"], state["port"]) != from.addr:
				return nil
			case strings.Contains(state["flags"], "failover_in_progress"):
				return errors.New("failover in progress")
			}
			return cmp.Or(c.Failover(ctx, sentinelName).Err(), errors.New("failover requested"))
		})
	})
	return g.WaitForFailover(t, from)
}

// WaitForFailover is for a test that has killed or paused from. It returns the new master when Sentinel names it and it
// has that role.
func (g *Sentinel) WaitForFailover(t testing.TB, from *Server) (to *Server) {
	t.Helper()
	await(t, "failover from "+from.addr, func(ctx context.Context) (err error) {
		if to, err = g.master(ctx); err != nil {
			return err
		}
		if to == from {
			return errors.New("Sentinel still names it")
		}
		return inSync(ctx, to)
	})
	return to
}

// WaitForDemotion returns when a former master, which must be up, replicates from the current one. It has then lost its
// own writes since the failover, and refuses new ones.
func (g *Sentinel) WaitForDemotion(t testing.TB, old *Server) {
	t.Helper()
	g.Master(t).WaitForReplicas(t, old)
}

func (g *Sentinel) master(ctx context.Context) (master *Server, err error) {
	err = g.query(ctx, func(ctx context.Context, c *redis.SentinelClient) error {
		addr, err := c.GetMasterAddrByName(ctx, sentinelName).Result()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(g.servers, func(s *Server) bool { return s.addr == net.JoinHostPort(addr[0], addr[1]) })
		if i < 0 {
			return fmt.Errorf("it names %v, which is not one of its servers", addr)
		}
		master = g.servers[i]
		return nil
	})
	return master, err
}

func (g *Sentinel) query(ctx context.Context, f func(context.Context, *redis.SentinelClient) error) error {
	o := &redis.Options{Addr: g.process.addr}
	OneTry(o)
	client := redis.NewSentinelClient(o)
	return errors.Join(f(ctx, client), client.Close())
}

// configure sets the configuration file of the server, which the server may rewrite, and the args that precede all
// others.
func (s *Server) configure(t testing.TB, name, content string, args ...string) {
	t.Helper()
	path := filepath.Join(s.run.Dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	s.file = append([]string{path}, args...)
}
