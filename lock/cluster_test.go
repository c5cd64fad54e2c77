package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// One cluster for all: a node says CLUSTERDOWN for two seconds after its start. The subtests are not parallel, because each
// would wait for its turn among the tests of the package.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	t.Run("life", func(t *testing.T) { testClusterLife(t, c) })
	t.Run("check", func(t *testing.T) { testClusterCheck(t, c) })
	t.Run("operator", func(t *testing.T) { testClusterOperator(t, c) })
	t.Run("move", func(t *testing.T) { testClusterMove(t, c) })
	t.Run("failover", func(t *testing.T) { testClusterFailover(t, c) })
}

// keyOn returns a key that begins with prefix and whose slot a master has: always the same one. A master that a busy machine
// has made a replica meanwhile has none.
func keyOn(t *testing.T, c *redistest.Cluster, s *redistest.Server, prefix string) string {
	t.Helper()
	locker := lock.New(c.Client(t), "test")
	for i := range 1000 {
		if key := prefix + strconv.Itoa(i); c.Owner(t, locker.StorageKey(key)) == s {
			return key
		}
	}
	t.Fatalf("%s has no slots", s.Addr())
	return ""
}

// tag is what puts a key into its slot.
func tag(storageKey string) string {
	before, _, _ := strings.Cut(storageKey, "}")
	return before
}

// siblings returns n keys of the same slot as key.
func siblings(locker *lock.Locker, key string, n int) (keys []string) {
	want := tag(locker.StorageKey(key))
	for i := 0; len(keys) < n; i++ {
		if k := fmt.Sprint(key, "+", i); tag(locker.StorageKey(k)) == want {
			keys = append(keys, k)
		}
	}
	return keys
}

// awaitShardMark is awaitMark on the server that has the key's slot.
func awaitShardMark(t *testing.T, s *redistest.Server, storageKey string) {
	t.Helper()
	s.Since(t, "7.0", "a message to those who wait in a Cluster")
	client := s.Client(t)
	eventually(t, "somebody listens, and the claim says so", func() bool {
		n, err := client.PubSubShardNumSub(t.Context(), storageKey).Result()
		must(t, err)
		stored, _ := s.Raw(t, storageKey)
		return n[storageKey] == 1 && len(stored) > 20 && stored[20] == 1
	})
}

// A client that reads from replicas does not do so for us: they may not have heard yet what has happened.
func testClusterLife(t *testing.T, c *redistest.Cluster) {
	for name, test := range map[string]struct {
		client func(*redis.ClusterOptions)
		opts   []lock.Option
	}{
		"RESP2":         {func(o *redis.ClusterOptions) { o.Protocol = 2 }, nil},
		"RESP3, fenced": {func(o *redis.ClusterOptions) { o.Protocol, o.ContextTimeoutEnabled = 3, true }, []lock.Option{lock.WithFencing()}},
		// Not RouteByLatency: go-redis 9.23 measures while it still makes the node's client, which is a data race.
		"ReadOnly":      {func(o *redis.ClusterOptions) { o.ReadOnly = true }, []lock.Option{acknowledged}},
		"RouteRandomly": {func(o *redis.ClusterOptions) { o.RouteRandomly = true }, []lock.Option{lock.WithFencing(), acknowledged}},
	} {
		t.Run(name, func(t *testing.T) {
			proxies := redistest.NewProxies(t, c.Servers()...)
			client := c.Client(t, test.client, func(o *redis.ClusterOptions) { o.Dialer = proxies.Dial })
			holder, waiter := newLocker(t, client, test.opts...), newLocker(t, client, append(test.opts, byMessage)...)
			for i, s := range c.Servers()[:3] {
				key := keyOn(t, c, s, fmt.Sprint(name, i))
				testLife(t, holder, waiter, key, func() { awaitShardMark(t, s, holder.StorageKey(key)) })
			}
			for _, replica := range c.Servers()[3:] {
				for _, command := range proxies[replica].Commands() {
					if command != "CLUSTER" && command != "COMMAND" {
						t.Errorf("a replica was sent %s", command)
					}
				}
			}
		})
	}
}

// testLife leads a key through its life, twice: until it is settled, and until it is released. The waiter looks once,
// and then no more unless a message tells it to, which await waits for.
func testLife(t *testing.T, holder, waiter *lock.Locker, key string, await func()) {
	t.Helper()
	ctx := t.Context()
	mine, err := holder.Claim(ctx, key, []byte("note"), time.Hour)
	if err != nil || mine.State != lock.Granted {
		t.Fatalf("Claim: %v, %v", mine.State, err)
	}
	if met, err := waiter.Claim(ctx, key, nil, 0); err != nil || met.State != lock.Held || string(met.Note) != "note" {
		t.Errorf("a rival's Claim: %v %q, %v, want held", met.State, met.Note, err)
	}
	waits := waitFor(ctx, waiter, key)
	await()
	wantErr(t, "Extend", mine.Lease.Extend(ctx, time.Minute), nil)
	wantErr(t, "Settle", mine.Lease.Settle(ctx, []byte("value"), time.Hour), nil)
	if waits.end(t); waits.err != nil || waits.claim.State != lock.Settled || string(waits.claim.Value) != "value" {
		t.Errorf("Wait: %v %q, %v, want settled", waits.claim.State, waits.claim.Value, waits.err)
	}
	if met, err := waiter.Claim(ctx, key, nil, 0); err != nil || met.State != lock.Settled || string(met.Value) != "value" {
		t.Errorf("a replay: %v %q, %v, want settled", met.State, met.Value, err)
	}
	wantErr(t, "Forget", forget(ctx, holder, key), nil)

	lease := acquire(t, holder, key)
	if _, ok, err := waiter.TryAcquire(ctx, key); ok || err != nil {
		t.Errorf("a rival's TryAcquire: %v, %v, want false, nil", ok, err)
	}
	takes := acquireFor(ctx, waiter, key)
	await()
	resumed := resume(t, holder, key, lease.Token())
	wantErr(t, "Release of what was resumed", lease.Release(ctx), lock.ErrLost)
	release(t, resumed)
	if takes.end(t); takes.err != nil {
		t.Fatalf("Acquire: %v", takes.err)
	}
	fences := []int64{mine.Lease.Fence(), lease.Fence(), resumed.Fence(), takes.claim.Lease.Fence()}
	if fences[0] > 0 && (!slices.IsSorted(fences) || len(slices.Compact(fences)) < 4) {
		t.Errorf("fences %d", fences)
	}
	release(t, takes.claim.Lease)
}

// What is wrong with a single master is found, and its address is told.
func testClusterCheck(t *testing.T, c *redistest.Cluster) {
	bad := c.Servers()[1]
	for _, s := range c.Servers() {
		args := []any{"ACL", "SETUSER", "noeval", "on", ">any", "~*", "+@all"}
		if s == bad {
			args = append(args, "-eval")
		}
		must(t, s.Client(t).Do(t.Context(), args...).Err())
	}
	noeval := func(o *redis.ClusterOptions) { o.Username, o.Password = "noeval", "any" }
	locker, forbidden := newLocker(t, c.Client(t), acknowledged), newLocker(t, c.Client(t, noeval))
	wantErr(t, "Check", locker.Check(t.Context()), nil)
	two := newLocker(t, c.Client(t), lock.WithReplicas(2, time.Second))
	wantErr(t, "Check of two replicas", two.Check(t.Context()), lock.ErrNotReplicated)
	if err := forbidden.Check(t.Context()); err == nil || !strings.Contains(err.Error(), bad.Addr()) {
		t.Errorf("Check: %v, want an error of %s", err, bad.Addr())
	}
	must(t, bad.Client(t).ConfigSet(t.Context(), "maxmemory-policy", "volatile-lru").Err())
	err := locker.Check(t.Context())
	if !errors.Is(err, lock.ErrEviction) {
		t.Fatalf("Check: %v, want ErrEviction", err)
	}
	for _, s := range c.Servers()[:3] {
		if got := strings.Contains(err.Error(), s.Addr()); got != (s == bad) {
			t.Errorf("Check of %s: %q", s.Addr(), err)
		}
	}
}

// fault: Cluster MOVED/ASK while held
func testClusterMove(t *testing.T, c *redistest.Cluster) {
	from, to := c.Servers()[0], c.Servers()[1]
	// The client hears only from the nodes' answers that a slot has moved, as if it were the first one of a new master.
	late := func(o *redis.ClusterOptions) {
		o.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: from.Addr()}}}}, nil
		}
	}
	keys := siblings(lock.New(c.Client(t), "test"), keyOn(t, c, from, "moved"), 10)
	movers := []*mover{
		{name: "plain", client: c.Client(t)},
		{name: "replicated, late", client: c.Client(t, late), opts: []lock.Option{acknowledged}},
		{name: "fenced", client: c.Client(t), opts: []lock.Option{lock.WithFencing()}},
		{name: "both, late", client: c.Client(t, late), opts: []lock.Option{lock.WithFencing(), acknowledged}},
	}
	for _, m := range movers {
		m.opts = append(m.opts, lock.WithTTL(time.Hour), lock.WithOpTimeout(time.Minute))
		m.locker, m.rival, m.leases = lock.New(m.client, m.name, m.opts...), lock.New(m.client, m.name, m.opts...), map[string]*lock.Lease{}
		t.Cleanup(func() { _, _ = m.locker.Close(context.Background()), m.rival.Close(context.Background()) })
		for i, k := range keys[:8] {
			m.leases[k] = claimUnder(t, m.locker, k, time.Duration(i%4%2)*time.Minute) // the second one has a hold
		}
	}
	moved := movers[0].locker.StorageKey(keys[0])
	c.BeginMove(t, moved, to)
	for _, m := range movers {
		m.follow(t, "ASK", keys[:4])
		_, ok, err := m.locker.TryAcquire(t.Context(), keys[8])
		isFenced := m.leases[keys[0]].Fence() > 0 // a command on two keys, of which one is new, has to wait for the end of the move
		if ok == isFenced || redis.IsTryAgainError(err) != isFenced {
			t.Errorf("%s: TryAcquire while the slot moves: %v, %v", m.name, ok, err)
		}
	}
	c.EndMove(t, moved, to)
	for _, m := range movers {
		m.follow(t, "MOVED", keys[4:8])
		if lease := acquire(t, m.locker, keys[9]); lease.Fence() < m.leases[keys[7]].Fence() {
			t.Errorf("%s: fence %d after %d", m.name, lease.Fence(), m.leases[keys[7]].Fence())
		}
	}
}

// mover is a Locker, with a rival, that has leases on keys of one slot while that moves.
type mover struct {
	name          string // and namespace
	client        redis.UniversalClient
	opts          []lock.Option
	locker, rival *lock.Locker
	leases        map[string]*lock.Lease
}

// follow does everything to leases, of which there are four, and to what they leave behind.
func (m *mover) follow(t *testing.T, phase string, keys []string) {
	t.Helper()
	ctx := t.Context()
	failed := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s, %s: %s: %v", m.name, phase, what, err)
		}
	}
	failed("Extend", m.leases[keys[0]].Extend(ctx, 2*time.Hour))
	failed("Settle", m.leases[keys[2]].Settle(ctx, []byte("v"), time.Hour))
	for k, want := range map[string]lock.State{keys[0]: lock.Held, keys[1]: lock.Held, keys[2]: lock.Settled} {
		met, err := m.rival.Claim(ctx, k, nil, 0)
		failed("Claim", err)
		if met.State != want {
			t.Errorf("%s, %s: Claim: %v, want %v", m.name, phase, met.State, want)
		}
	}
	failed("Forget", forget(ctx, m.rival, keys[2]))
	for _, k := range []string{keys[0], keys[1], keys[3]} {
		failed("Release", m.leases[k].Release(ctx))
	}
}

// A shard's replica takes its place after its death. What was acknowledged is still there.
func testClusterFailover(t *testing.T, c *redistest.Cluster) {
	owner, client := c.Servers()[1], c.Client(t)
	replicated, rival := newLocker(t, client, acknowledged), newLocker(t, c.Client(t))
	key := keyOn(t, c, owner, "failover")
	keys := siblings(replicated, key, 2)
	lease, other := acquire(t, replicated, key), acquire(t, replicated, keys[0])
	owner.Kill(t)
	to := c.WaitForFailover(t, replicated.StorageKey(key), owner)
	owner.Restart(t)
	to.WaitForReplicas(t, owner)
	for _, k := range []string{key, keys[0]} {
		if _, ok, err := rival.TryAcquire(t.Context(), k); ok || err != nil {
			t.Errorf("a rival: %v, %v, want false, nil", ok, err)
		}
	}
	wantErr(t, "Extend", lease.Extend(t.Context(), time.Minute), nil)
	wantErr(t, "Settle", lease.Settle(t.Context(), []byte("v"), time.Hour), nil)
	release(t, other)
	release(t, acquire(t, replicated, keys[1]))
}
