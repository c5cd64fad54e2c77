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

// Sentinel is a master and its replicas with one Sentinel process over them,
// whose word is enough for a failover. It takes a server for down that has not
// answered for half a second; an automatic failover is over after one or two,
// and Sentinel begins none within 4 seconds of the last one.
type Sentinel struct {
	servers []*Server
	process *Server
}

// What Sentinel calls the master.
const sentinelName = "main"

// StartSentinel runs a master with its replicas and a Sentinel, and returns
// when the replicas are in sync and Sentinel knows them. The args are those of
// the master and of each replica.
//
// Each of these has a configuration file, and Sentinel writes the present
// master into it. So a Restart brings a server back as what it was, and what
// was master before a failover comes back as a second master, until Sentinel
// sees to it: [Sentinel.WaitForDemotion].
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
		s.configure(t, "redis.conf", fmt.Sprintf("replicaof 127.0.0.1 %d\n", master.port))
	}
	start(t, others...)
	master.WaitForReplicas(t, others...)
	g.watch(t, master)
	return g
}

// watch starts the Sentinel process, and returns when it sees every server.
func (g *Sentinel) watch(t testing.TB, master *Server) {
	t.Helper()
	g.process = newServer(t)
	g.process.configure(t, "sentinel.conf", fmt.Sprintf(""+
		"sentinel monitor %[1]s 127.0.0.1 %[2]d 1\n"+
		"sentinel down-after-milliseconds %[1]s 500\n"+
		"sentinel failover-timeout %[1]s 2000\n"+
		"sentinel parallel-syncs %[1]s 100\n",
		sentinelName, master.port), "--sentinel")
	start(t, g.process)
	// What it does every 10 s, or puts off for 30 s when the machine was
	// busy, as in the tests of Redis itself. It came with Redis 7.0.
	g.process.do(t, "SENTINEL DEBUG", func(ctx context.Context, c *redis.Client) error {
		err := c.Do(ctx, "SENTINEL", "DEBUG", "INFO-PERIOD", 200, "PING-PERIOD", 100,
			"ASK-PERIOD", 100, "PUBLISH-PERIOD", 200, "TILT-PERIOD", 500).Err()
		if redis.HasErrorPrefix(err, "Unknown sentinel subcommand") {
			return nil
		}
		return err
	})
	if err := await(g.sees); err != nil {
		t.Fatalf("redistest: Sentinel on %s: %v", g.process.addr, err)
	}
}

// sees returns nil if Sentinel knows every server and takes it for healthy.
func (g *Sentinel) sees(ctx context.Context) error {
	return g.ask(ctx, func(ctx context.Context, c *redis.SentinelClient) error {
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

// Servers returns all servers but the Sentinel: first the one that was the
// master at the start.
func (g *Sentinel) Servers() []*Server { return slices.Clone(g.servers) }

// Master returns the server that Sentinel names as the master now, up or not.
func (g *Sentinel) Master(t testing.TB) *Server {
	t.Helper()
	var master *Server
	err := await(func(ctx context.Context) (err error) {
		master, err = g.master(ctx)
		return err
	})
	if err != nil {
		t.Fatalf("redistest: Sentinel on %s: %v", g.process.addr, err)
	}
	return master
}

// Replicas returns the servers that are not the master now.
func (g *Sentinel) Replicas(t testing.TB) []*Server {
	t.Helper()
	master := g.Master(t)
	return slices.DeleteFunc(g.Servers(), func(s *Server) bool { return s == master })
}

// Client returns a failover client, which asks Sentinel for the master, and is
// closed when the test ends. Its options are go-redis's own defaults, changed
// by opts in order.
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

// Failover makes Sentinel promote a replica, and returns it when Sentinel names
// it as the master. The old master is not asked, and not told: it goes on
// as a master, and loses what it accepts, until [Sentinel.WaitForDemotion].
func (g *Sentinel) Failover(t testing.TB) *Server {
	t.Helper()
	from := g.Master(t)
	err := await(func(ctx context.Context) error {
		if to, err := g.master(ctx); err != nil || to != from {
			return err
		}
		return g.ask(ctx, func(ctx context.Context, c *redis.SentinelClient) error {
			// On a busy machine Sentinel may find no good replica, also after it has said OK. Then it gives up.
			state, err := c.Master(ctx, sentinelName).Result()
			if err != nil {
				return err
			}
			if strings.Contains(state["flags"], "failover_in_progress") {
				return errors.New("under way")
			}
			return cmp.Or(c.Failover(ctx, sentinelName).Err(), errors.New("asked just now"))
		})
	})
	if err != nil {
		t.Fatalf("redistest: SENTINEL FAILOVER from %s: %v", from.addr, err)
	}
	return g.WaitForFailover(t, from)
}

// WaitForFailover returns the new master when it is one, and Sentinel names it,
// instead of from: for a test that has killed or paused that.
func (g *Sentinel) WaitForFailover(t testing.TB, from *Server) *Server {
	t.Helper()
	var to *Server
	err := await(func(ctx context.Context) (err error) {
		if to, err = g.master(ctx); err != nil {
			return err
		}
		if to == from {
			return errors.New("Sentinel still names it")
		}
		return inSync(ctx, to)
	})
	if err != nil {
		t.Fatalf("redistest: failover from %s: %v", from.addr, err)
	}
	return to
}

// WaitForDemotion returns when a former master, which must be up, replicates
// from the present one: it has lost what only it had, and refuses writes.
func (g *Sentinel) WaitForDemotion(t testing.TB, old *Server) {
	t.Helper()
	err := await(func(ctx context.Context) error {
		master, err := g.master(ctx)
		if err != nil {
			return err
		}
		return inSync(ctx, master, old)
	})
	if err != nil {
		t.Fatalf("redistest: demotion of %s: %v", old.addr, err)
	}
}

func (g *Sentinel) master(ctx context.Context) (master *Server, err error) {
	err = g.ask(ctx, func(ctx context.Context, c *redis.SentinelClient) error {
		addr, err := c.GetMasterAddrByName(ctx, sentinelName).Result()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(g.servers, func(s *Server) bool { return s.addr == net.JoinHostPort(addr[0], addr[1]) })
		if i < 0 {
			return fmt.Errorf("it names %v, which is none of ours", addr)
		}
		master = g.servers[i]
		return nil
	})
	return master, err
}

func (g *Sentinel) ask(ctx context.Context, f func(context.Context, *redis.SentinelClient) error) error {
	o := &redis.Options{Addr: g.process.addr}
	OneTry(o)
	client := redis.NewSentinelClient(o)
	return errors.Join(f(ctx, client), client.Close())
}

// configure gives the server a configuration file, which it may rewrite, and
// the args that belong to it.
func (s *Server) configure(t testing.TB, name, content string, args ...string) {
	t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	s.file = append([]string{path}, args...)
}
