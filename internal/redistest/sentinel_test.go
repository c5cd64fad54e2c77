package redistest_test

import (
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestSentinel(t *testing.T) {
	t.Parallel()
	g := redistest.StartSentinel(t, 2, "--maxmemory", "3mb")
	servers, first := g.Servers(), g.Master(t)
	if len(servers) != 3 || first != servers[0] || !slices.Equal(g.Replicas(t), servers[1:]) {
		t.Fatalf("got %d servers, master %s", len(servers), first.Addr())
	}
	client := g.Client(t, func(o *redis.FailoverOptions) { o.PoolSize = 1 })
	set := func(key string) {
		t.Helper()
		eventually(t, "SET "+key, func() bool { return client.Set(within(t), key, "value", 0).Err() == nil })
	}
	has := func(what string, s *redistest.Server, key string, want bool) {
		t.Helper()
		if _, got := s.Raw(t, key); got != want {
			t.Errorf("%s: has %s: %t", what, key, got)
		}
	}
	set("a")
	first.WaitForReplicas(t, servers[1:]...)

	second := g.Failover(t)
	if second == first || g.Master(t) != second || slices.Contains(g.Replicas(t), second) {
		t.Errorf("after a failover from %s: master %s", first.Addr(), second.Addr())
	}
	has("the new master", second, "a", true)
	g.WaitForDemotion(t, first)
	if err := first.Client(t).Set(within(t), "b", "value", 0).Err(); !redis.IsReadOnlyError(err) {
		t.Errorf("the old master: got %v, want READONLY", err)
	}
	set("b")
	has("the new master", second, "b", true)

	for _, s := range g.Replicas(t) {
		g.WaitForDemotion(t, s) // the third server follows it too
	}
}

func TestSentinelWaitForFailover(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fail, recover func(*redistest.Server, testing.TB)
	}{
		"kill":  {(*redistest.Server).Kill, (*redistest.Server).Restart},
		"pause": {(*redistest.Server).Pause, (*redistest.Server).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := redistest.StartSentinel(t, 1)
			old := g.Master(t)
			if err := g.Client(t).Set(within(t), "key", "value", 0).Err(); err != nil {
				t.Fatal(err)
			}
			old.WaitForReplicas(t, g.Replicas(t)...)
			test.fail(old, t)
			master := g.WaitForFailover(t, old)
			if master == old || g.Master(t) != master {
				t.Errorf("from %s to %s, the master is %s", old.Addr(), master.Addr(), g.Master(t).Addr())
			}
			test.recover(old, t)
			g.WaitForDemotion(t, old)
			if _, ok := old.Raw(t, "key"); !ok {
				t.Error("the demoted server lacks what the new master has")
			}
			// A restart keeps the role that Sentinel gave it.
			old.Restart(t)
			g.WaitForDemotion(t, old)
		})
	}
}

func TestSentinelThroughProxies(t *testing.T) {
	t.Parallel()
	g := redistest.StartSentinel(t, 1)
	proxies := redistest.NewProxies(t, g.Servers()...)
	client := g.Client(t, func(o *redis.FailoverOptions) {
		o.Dialer = proxies.Dial
		o.MaxRetries = -1
	})
	for range 2 {
		master := g.Master(t)
		lost := proxies[master].DropReply(redistest.Nth(1, redistest.Named("SET")))
		eventually(t, "the master's proxy has dropped a reply", func() bool {
			if err := client.Set(within(t), "key", master.Addr(), 0).Err(); err == nil && lost.Hits() == 0 {
				t.Log("it still speaks with the old master")
			}
			return lost.Hits() == 1
		})
		if got, _ := master.Raw(t, "key"); got != master.Addr() {
			t.Errorf("got %q, want %q", got, master.Addr())
		}
		if err := client.Get(within(t), "key").Err(); err != nil {
			t.Error(err)
		}
		g.Failover(t)
		g.WaitForDemotion(t, master)
	}
}
