package redistest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	client := c.Client(t)
	owners := map[*redistest.Server]bool{}
	for i := range 50 {
		key := fmt.Sprint("key", i)
		if err := client.Set(within(t), key, "value", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		owner := c.Owner(t, key)
		owners[owner] = true
		if _, ok := owner.Raw(t, key); !ok {
			t.Errorf("the owner of %s does not have it", key)
		}
	}
	for _, s := range c.Servers() {
		if !owners[s] {
			t.Errorf("the master %s owns nothing", s.Addr())
		}
		s.Elapse(t, 2*time.Hour)
		if got := s.Keys(t); len(got) != 0 {
			t.Errorf("hours later %s has %q", s.Addr(), got)
		}
	}
	if len(owners) != 3 {
		t.Errorf("got %d owners", len(owners))
	}

}

func TestClusterFailover(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	client := c.Client(t)
	check := func(t *testing.T, key string, from, to *redistest.Server) {
		t.Helper()
		if got := c.Owner(t, key); to == from || got != to {
			t.Errorf("from %s to %s, the owner is %s", from.Addr(), to.Addr(), got.Addr())
		}
		eventually(t, "the client follows", func() bool { return client.Set(within(t), key, "value", 0).Err() == nil })
		if _, ok := to.Raw(t, key); !ok {
			t.Error("the new owner lacks what was written after the failover")
		}
		to.WaitForReplicas(t, from)
	}
	keys := shards(t, c, 3)
	for i, option := range [][]string{nil, {"FORCE"}, {"TAKEOVER"}} {
		t.Run(fmt.Sprint("failover", option), func(t *testing.T) {
			from := c.Owner(t, keys[i])
			check(t, keys[i], from, c.Failover(t, keys[i], option...))
		})
	}
	t.Run("kill", func(t *testing.T) {
		from := c.Owner(t, keys[2])
		from.Kill(t)
		if got := c.Owner(t, keys[2]); got != from {
			t.Errorf("at once: got %s, want %s", got.Addr(), from.Addr())
		}
		to := c.WaitForFailover(t, keys[2], from)
		from.Restart(t)
		check(t, keys[2], from, to)
	})
	t.Run("pause", func(t *testing.T) {
		from := c.Owner(t, keys[0])
		from.Pause(t)
		to := c.WaitForFailover(t, keys[0], from)
		from.Resume(t)
		check(t, keys[0], from, to)
	})
}

// shards returns one key for each of n masters.
func shards(t *testing.T, c *redistest.Cluster, n int) (keys []string) {
	t.Helper()
	owners := map[*redistest.Server]bool{}
	for i := 0; len(keys) < n; i++ {
		key := fmt.Sprint("key", i)
		if owner := c.Owner(t, key); !owners[owner] {
			owners[owner] = true
			keys = append(keys, key)
		}
	}
	return keys
}

func TestClusterMove(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	from, to := c.Owner(t, "key"), c.Servers()[1]
	if from == to {
		to = c.Servers()[0]
	}
	client := from.Client(t)
	if err := client.Set(within(t), "key", "value", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	for i := range 250 {
		if err := client.Set(within(t), fmt.Sprint("{key}", i), "value", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	check := func(answer, next string) {
		t.Helper()
		if err := client.Get(within(t), "key").Err(); err == nil || !strings.HasPrefix(err.Error(), answer) {
			t.Errorf("the old owner: got %v, want %s", err, answer)
		}
		if got := c.Owner(t, "key"); got.Addr() != next {
			t.Errorf("got the owner %s, want %s", got.Addr(), next)
		}
		if got, err := c.Client(t).Get(within(t), "key").Result(); got != "value" || err != nil {
			t.Errorf("a client follows: got %q, %v", got, err)
		}
	}
	c.BeginMove(t, "key", to)
	check("ASK", from.Addr())
	c.EndMove(t, "key", to)
	check("MOVED", to.Addr())
	if got := len(to.Keys(t)); got != 251 {
		t.Errorf("%d keys have arrived, want 251", got)
	}
	if left, err := to.Client(t).PTTL(within(t), "key").Result(); err != nil || left > time.Hour || left < 59*time.Minute {
		t.Errorf("of the TTL is left: %v, %v", left, err)
	}
	c.BeginMove(t, "key", from)
	c.EndMove(t, "key", from)
	if got := c.Owner(t, "key"); got != from {
		t.Errorf("moved back: got the owner %s, want %s", got.Addr(), from.Addr())
	}
}

func TestClusterThroughProxies(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	proxies := redistest.NewProxies(t, c.Servers()...)
	client := c.Client(t, func(o *redis.ClusterOptions) { o.Dialer = proxies.Dial })
	from, to := c.Owner(t, "key"), c.Servers()[1]
	if from == to {
		to = c.Servers()[0]
	}
	set := func(value string, by *redistest.Server) {
		t.Helper()
		named := redistest.Named("SET")
		lost := proxies[by].DropReply(redistest.Nth(1, named))
		if err := client.Set(within(t), "key", value, 0).Err(); err != nil { // go-redis retries
			t.Error(err)
		}
		if got := lost.Wait(t).String(); got != fmt.Sprintf(`SET "key" %q`, value) {
			t.Errorf("dropped the reply to %s", got)
		}
		lost.Lift()
	}
	set("one", from)
	c.BeginMove(t, "key", to)
	set("two", to)
	c.EndMove(t, "key", to)
	set("three", to)
}
