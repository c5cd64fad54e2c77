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
	t.Run("protocols", func(t *testing.T) { testClusterProtocols(t, c) })
	t.Run("abandoned", func(t *testing.T) { testClusterAbandoned(t, c) })
	t.Run("fencing", func(t *testing.T) { testClusterFencing(t, c) })
	t.Run("resume", func(t *testing.T) { testClusterResume(t, c) })
	t.Run("readers", func(t *testing.T) { testClusterReaders(t, c) })
	t.Run("replicas", func(t *testing.T) { testClusterReplicas(t, c) })
	t.Run("check", func(t *testing.T) { testClusterCheck(t, c) })
	t.Run("operator", func(t *testing.T) { testClusterOperator(t, c) })
	t.Run("move", func(t *testing.T) { testClusterMove(t, c) })
	t.Run("move wakes", func(t *testing.T) { testClusterMoveWakes(t, c) })
	t.Run("failover", func(t *testing.T) { testClusterFailover(t, c) })
}

// keyOn returns a key that begins with prefix and whose slot a master has: always the same one.
func keyOn(t *testing.T, c *redistest.Cluster, s *redistest.Server, prefix string) string {
	t.Helper()
	locker := lock.New(c.Client(t), "test")
	for i := 0; ; i++ {
		if key := prefix + strconv.Itoa(i); c.Owner(t, locker.StorageKey(key)) == s {
			return key
		}
	}
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
		if err != nil {
			t.Fatal(err)
		}
		stored, _ := s.Raw(t, storageKey)
		return n[storageKey] == 1 && len(stored) > 20 && stored[20] == 1
	})
}

// protocols are the clients that everything has to work with.
var protocols = map[string]struct {
	version int
	timeout bool
}{
	"RESP2":                       {2, false},
	"RESP3":                       {3, false},
	"RESP2 ContextTimeoutEnabled": {2, true},
	"RESP3 ContextTimeoutEnabled": {3, true},
}

func TestProtocols(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		for name, protocol := range protocols {
			client := func() redis.UniversalClient {
				return b.Client(t, func(o *redis.Options) {
					o.Protocol, o.ContextTimeoutEnabled = protocol.version, protocol.timeout
				})
			}
			t.Run(name, func(t *testing.T) {
				holder, waiter := newLocker(t, client()), newLocker(t, client(), byMessage)
				testLife(t, holder, waiter, name, func() { awaitMark(t, b, holder.StorageKey(name)) })
			})
		}
	})
}

func testClusterProtocols(t *testing.T, c *redistest.Cluster) {
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			client := func() redis.UniversalClient {
				return c.Client(t, func(o *redis.ClusterOptions) {
					o.Protocol, o.ContextTimeoutEnabled = protocol.version, protocol.timeout
				})
			}
			for i, s := range c.Servers()[:3] {
				key := keyOn(t, c, s, fmt.Sprint(name, i))
				holder, waiter := newLocker(t, client()), newLocker(t, client(), byMessage)
				testLife(t, holder, waiter, key, func() { awaitShardMark(t, s, holder.StorageKey(key)) })
			}
		})
	}
}

// testLife leads a key through its life, twice: until it is settled, and until it is released. The waiter looks once,
// and then no more unless a message tells it to, which await waits for.
func testLife(t *testing.T, holder, waiter *lock.Locker, key string, await func()) {
	t.Helper()
	ctx := t.Context()
	mine, err := holder.Claim(ctx, key, []byte("note"), 0)
	if err != nil || mine.State != lock.Granted {
		t.Fatalf("Claim: %v, %v", mine.State, err)
	}
	if met, err := waiter.Claim(ctx, key, nil, 0); err != nil || met.State != lock.Held || string(met.Note) != "note" {
		t.Errorf("a rival's Claim: %v %q, %v, want held", met.State, met.Note, err)
	}
	waits := waitFor(ctx, waiter, key)
	await()
	if err := mine.Lease.Extend(ctx, time.Minute); err != nil {
		t.Errorf("Extend: %v", err)
	}
	if err := mine.Lease.Settle(ctx, []byte("value"), time.Hour); err != nil {
		t.Errorf("Settle: %v", err)
	}
	if waits.end(t); waits.err != nil || waits.claim.State != lock.Settled || string(waits.claim.Value) != "value" {
		t.Errorf("Wait: %v %q, %v, want settled", waits.claim.State, waits.claim.Value, waits.err)
	}
	if met, err := waiter.Claim(ctx, key, nil, 0); err != nil || met.State != lock.Settled || string(met.Value) != "value" {
		t.Errorf("a replay: %v %q, %v, want settled", met.State, met.Value, err)
	}
	if err := forget(ctx, holder, key); err != nil {
		t.Errorf("Forget: %v", err)
	}

	lease := acquire(t, holder, key)
	if _, ok, err := waiter.TryAcquire(ctx, key); ok || err != nil {
		t.Errorf("a rival's TryAcquire: %v, %v, want false, nil", ok, err)
	}
	takes := acquireFor(ctx, waiter, key)
	await()
	if err := lease.Release(ctx); err != nil {
		t.Errorf("Release: %v", err)
	}
	if takes.end(t); takes.err != nil {
		t.Fatalf("Acquire: %v", takes.err)
	}
	if takes.took > 5*time.Second { // when the first lease would have ended, it looks by itself
		t.Errorf("Acquire was not woken, it took %v", takes.took)
	}
	if err := takes.claim.Lease.Release(ctx); err != nil {
		t.Errorf("Release: %v", err)
	}
}

func testClusterAbandoned(t *testing.T, c *redistest.Cluster) {
	holder := newLocker(t, c.Client(t), lock.WithTTL(5*time.Second), lock.WithoutRenewal())
	rival := newLocker(t, c.Client(t))
	claim, err := holder.Claim(t.Context(), "abandoned", []byte("note"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	waits := waitFor(t.Context(), rival, "abandoned")
	if waits.end(t); waits.err != nil || waits.claim.State != lock.Abandoned || string(waits.claim.Note) != "note" {
		t.Errorf("Wait: %v %q, %v, want abandoned", waits.claim.State, waits.claim.Note, waits.err)
	}
	if met, err := rival.Claim(t.Context(), "abandoned", nil, 0); err != nil || met.State != lock.Abandoned {
		t.Errorf("Claim: %v, %v, want abandoned", met.State, err)
	}
	if err := claim.Lease.Settle(t.Context(), []byte("late"), time.Hour); err != nil {
		t.Errorf("Settle by the late owner: %v", err)
	}
	if met, err := rival.Claim(t.Context(), "abandoned", nil, 0); err != nil || string(met.Value) != "late" {
		t.Errorf("Claim: %v %q, %v, want settled", met.State, met.Value, err)
	}
}

func testClusterFencing(t *testing.T, c *redistest.Cluster) {
	locker := newLocker(t, c.Client(t), lock.WithFencing())
	for _, s := range c.Servers()[:3] {
		key := keyOn(t, c, s, "fenced")
		last := int64(0)
		for _, k := range append(siblings(locker, key, 2), key, key) {
			lease := acquire(t, locker, k)
			if lease.Fence() <= last {
				t.Errorf("fence %d after %d", lease.Fence(), last)
			}
			last = lease.Fence()
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if _, ok := s.Raw(t, tag(locker.StorageKey(key))+"}fence"); !ok {
			t.Error("the counter is not where the keys are")
		}
	}
}

func testClusterResume(t *testing.T, c *redistest.Cluster) {
	for _, opts := range [][]lock.Option{{lock.WithTTL(time.Hour)}, {lock.WithTTL(time.Hour), lock.WithFencing()}} {
		locker, other := newLocker(t, c.Client(t), opts...), newLocker(t, c.Client(t), opts...)
		for _, s := range c.Servers()[:3] {
			key := keyOn(t, c, s, "resumed")
			old := acquire(t, locker, key)
			lease := resume(t, other, key, old.Token())
			wantResumed(t, locker, key, lease)
			if (lease.Fence() > old.Fence()) != (len(opts) == 2) {
				t.Errorf("fence %d after %d", lease.Fence(), old.Fence())
			}
			if err := old.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
				t.Errorf("Release of the old lease: %v", err)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// A client that reads from replicas does not do so for us: they may not have heard yet what has happened.
func testClusterReaders(t *testing.T, c *redistest.Cluster) {
	for name, opt := range map[string]func(*redis.ClusterOptions){
		// Not RouteByLatency: go-redis 9.23 measures while it still makes the node's client, which is a data race.
		"ReadOnly":      func(o *redis.ClusterOptions) { o.ReadOnly = true },
		"RouteRandomly": func(o *redis.ClusterOptions) { o.RouteRandomly = true },
	} {
		t.Run(name, func(t *testing.T) {
			proxies := redistest.NewProxies(t, c.Servers()...)
			client := c.Client(t, opt, func(o *redis.ClusterOptions) { o.Dialer = proxies.Dial })
			for _, opts := range [][]lock.Option{{byMessage}, {byMessage, lock.WithFencing()}, {byMessage, acknowledged}} {
				locker := newLocker(t, client, opts...)
				for i, s := range c.Servers()[:3] {
					key := keyOn(t, c, s, fmt.Sprint(name, len(opts), i))
					testLife(t, locker, locker, key, func() { awaitShardMark(t, s, locker.StorageKey(key)) })
				}
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

// replicaOf returns the replica of a master of the start.
func replicaOf(c *redistest.Cluster, master *redistest.Server) *redistest.Server {
	return c.Servers()[3+slices.Index(c.Servers(), master)]
}

// fault: replica stopped, WithReplicas(1)
func testClusterReplicas(t *testing.T, c *redistest.Cluster) {
	for i, s := range c.Servers()[:3] {
		client := c.Client(t)
		locker, early := newLocker(t, client, briefly), newLocker(t, client, acknowledged)
		key := keyOn(t, c, s, fmt.Sprint("replicated", i))
		lease := acquire(t, early, key)
		if keys := replicaOf(c, s).Keys(t); !slices.Contains(keys, early.StorageKey(key)) {
			t.Errorf("the replica has %q", keys)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		replicaOf(c, s).Pause(t)
		if _, ok, err := locker.TryAcquire(t.Context(), key); ok || !errors.Is(err, lock.ErrNotReplicated) {
			t.Errorf("TryAcquire: %v, %v, want false, ErrNotReplicated", ok, err)
		}
		replicaOf(c, s).Resume(t)
		closeWithin(t, locker)
		if _, ok := s.Raw(t, locker.StorageKey(key)); ok {
			t.Error("a claim that was not granted is left")
		}
	}
}

func testClusterCheck(t *testing.T, c *redistest.Cluster) {
	locker := newLocker(t, c.Client(t), acknowledged)
	if err := locker.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	two := newLocker(t, c.Client(t), lock.WithReplicas(2, time.Second))
	if err := two.Check(t.Context()); !errors.Is(err, lock.ErrNotReplicated) {
		t.Errorf("Check of two replicas: %v, want ErrNotReplicated", err)
	}
	testClusterCheckACL(t, c)
	bad := c.Servers()[1]
	if err := bad.Client(t).ConfigSet(t.Context(), "maxmemory-policy", "volatile-lru").Err(); err != nil {
		t.Fatal(err)
	}
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

// A user may lack a right on a single master.
func testClusterCheckACL(t *testing.T, c *redistest.Cluster) {
	t.Helper()
	bad := c.Servers()[2]
	for _, s := range c.Servers() {
		args := []any{"ACL", "SETUSER", "noeval", "on", ">any", "~*", "+@all"}
		if s == bad {
			args = append(args, "-eval")
		}
		if err := s.Client(t).Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	client := c.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = "noeval", "any" })
	err := newLocker(t, client).Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), bad.Addr()) {
		t.Errorf("Check: %v, want an error of %s", err, bad.Addr())
	}
}

// fault: Cluster MOVED/ASK while held
func testClusterMove(t *testing.T, c *redistest.Cluster) {
	from, to := c.Servers()[0], c.Servers()[1]
	key := keyOn(t, c, from, "moved")
	// The client hears only from the nodes' answers that a slot has moved, as if it were the first one of a new master.
	late := func(o *redis.ClusterOptions) {
		o.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: from.Addr()}}}}, nil
		}
	}
	movers := []*mover{
		{name: "plain", client: c.Client(t)},
		{name: "plain-late", client: c.Client(t, late)},
		{name: "replicated", client: c.Client(t), opts: []lock.Option{acknowledged}},
		{name: "replicated-late", client: c.Client(t, late), opts: []lock.Option{acknowledged}},
		{name: "fenced", client: c.Client(t), opts: []lock.Option{lock.WithFencing()}, fenced: true},
		{
			name: "both", client: c.Client(t, late), fenced: true,
			opts: []lock.Option{lock.WithFencing(), acknowledged},
		},
	}
	keys := siblings(lock.New(c.Client(t), "test"), key, 11)
	for _, m := range movers {
		m.begin(t, keys)
	}
	c.BeginMove(t, movers[0].locker.StorageKey(key), to)
	for _, m := range movers {
		m.follow(t, "ASK", keys[:4])
		m.claimAfresh(t, keys[8])
	}
	for _, m := range movers {
		m.awaitRenewal(t, "ASK")
	}
	c.EndMove(t, movers[0].locker.StorageKey(key), to)
	for _, m := range movers {
		m.follow(t, "MOVED", keys[4:8])
		if lease := acquire(t, m.locker, keys[9]); m.fenced && lease.Fence() <= m.fence {
			t.Errorf("%s: fence %d after %d", m.name, lease.Fence(), m.fence)
		}
	}
	for _, m := range movers {
		m.awaitRenewal(t, "MOVED")
		if err := m.kept.Release(t.Context()); err != nil {
			t.Errorf("%s: Release: %v", m.name, err)
		}
		if _, ok := to.Raw(t, m.locker.StorageKey(key)); ok {
			t.Errorf("%s: a key that was released is left", m.name)
		}
	}
}

// mover is a Locker, with a rival, that has leases on keys of one slot while that moves.
type mover struct {
	name   string // and namespace
	client redis.UniversalClient
	opts   []lock.Option
	fenced bool

	locker, rival *lock.Locker
	leases        map[string]*lock.Lease
	fence         int64       // of the last one of them
	kept          *lock.Lease // which is only renewed, often
	until         time.Time   // its end when the slot was about to move
}

func (m *mover) newLocker(t *testing.T, opts ...lock.Option) *lock.Locker {
	t.Helper()
	locker := lock.New(m.client, m.name, append(append(opts, lock.WithOpTimeout(20*time.Second)), m.opts...)...)
	t.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return locker
}

func (m *mover) begin(t *testing.T, keys []string) {
	t.Helper()
	m.locker, m.rival, m.leases = m.newLocker(t), m.newLocker(t), map[string]*lock.Lease{}
	for i, k := range keys[:8] {
		m.leases[k] = claimUnder(t, m.locker, k, time.Duration(i%4%2)*time.Minute) // the second one has a hold
		m.fence = m.leases[k].Fence()
	}
	m.kept = acquire(t, m.newLocker(t, lock.WithTTL(6*time.Second)), keys[10])
}

// follow does everything to leases, of which there are four, and to what they leave behind.
func (m *mover) follow(t *testing.T, phase string, keys []string) {
	t.Helper()
	ctx := t.Context()
	m.until = m.kept.Until()
	failed := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s, %s: %s: %v", m.name, phase, what, err)
		}
	}
	failed("Extend", m.leases[keys[0]].Extend(ctx, time.Minute))
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

// claimAfresh takes a key that nobody has had, while the slot is on its way.
func (m *mover) claimAfresh(t *testing.T, key string) {
	t.Helper()
	_, ok, err := m.locker.TryAcquire(t.Context(), key)
	switch {
	case m.fenced: // a command on two keys, of which one is new, has to wait for the end of the move
		if ok || !redis.IsTryAgainError(err) {
			t.Errorf("%s: TryAcquire: %v, %v, want false, TRYAGAIN", m.name, ok, err)
		}
	case !ok || err != nil:
		t.Errorf("%s: TryAcquire: %v, %v, want true, nil", m.name, ok, err)
	}
}

func (m *mover) awaitRenewal(t *testing.T, phase string) {
	t.Helper()
	eventually(t, "a renewal", func() bool { return m.kept.Until().After(m.until) || m.kept.Context().Err() != nil })
	if err := m.kept.Context().Err(); err != nil {
		t.Errorf("%s, %s: the lease was lost: %v", m.name, phase, context.Cause(m.kept.Context()))
	}
}

// fault: Cluster MOVED/ASK while held
func testClusterMoveWakes(t *testing.T, c *redistest.Cluster) {
	from, to := c.Servers()[1], c.Servers()[2]
	holder := newLocker(t, c.Client(t), lock.WithTTL(time.Minute))
	byTimer, onlyHears := newLocker(t, c.Client(t)), newLocker(t, c.Client(t), byMessage)
	first := keyOn(t, c, from, "woken")
	second := siblings(holder, first, 1)[0]
	leases := map[string]*lock.Lease{first: acquire(t, holder, first), second: acquire(t, holder, second)}
	timed := waitFor(t.Context(), byTimer, first)
	awaitShardMark(t, from, holder.StorageKey(first))
	heard := waitFor(t.Context(), onlyHears, second)
	awaitShardMark(t, from, holder.StorageKey(second))

	c.BeginMove(t, holder.StorageKey(first), to)
	if err := leases[first].Release(t.Context()); err != nil { // nobody hears it: they still listen at the old owner
		t.Errorf("Release: %v", err)
	}
	if timed.end(t); timed.err != nil || timed.claim.State != lock.Free {
		t.Errorf("Wait: %v, %v, want free", timed.claim.State, timed.err)
	}
	c.EndMove(t, holder.StorageKey(first), to)
	start := time.Now()
	awaitShardMark(t, to, holder.StorageKey(second))
	t.Logf("it listens at the new owner after %v", time.Since(start))
	if err := leases[second].Release(t.Context()); err != nil {
		t.Errorf("Release: %v", err)
	}
	if heard.end(t); heard.err != nil || heard.claim.State != lock.Free {
		t.Errorf("Wait: %v, %v, want free", heard.claim.State, heard.err)
	}
}

// A shard's replica takes its place, asked for and after its death. What was acknowledged is still there.
func testClusterFailover(t *testing.T, c *redistest.Cluster) {
	for name, fail := range map[string]func(t *testing.T, key string, owner *redistest.Server){
		"switch": func(t *testing.T, key string, _ *redistest.Server) { c.Failover(t, key) },
		"kill": func(t *testing.T, key string, owner *redistest.Server) {
			owner.Kill(t)
			to := c.WaitForFailover(t, key, owner)
			owner.Restart(t)
			to.WaitForReplicas(t, owner)
		},
	} {
		owner := c.Servers()[2]
		if name == "kill" {
			owner = c.Servers()[1]
		}
		t.Run(name, func(t *testing.T) {
			client := c.Client(t)
			replicated := newLocker(t, client, acknowledged)
			waiter := newLocker(t, c.Client(t))
			key := keyOn(t, c, owner, name)
			keys := siblings(replicated, key, 2)
			lease, other := acquire(t, replicated, key), acquire(t, replicated, keys[0])
			waits := waitFor(t.Context(), waiter, key)
			awaitShardMark(t, owner, replicated.StorageKey(key))
			fail(t, replicated.StorageKey(key), owner)
			for _, k := range []string{key, keys[0]} {
				if _, ok, err := waiter.TryAcquire(t.Context(), k); ok || err != nil {
					t.Errorf("a rival: %v, %v, want false, nil", ok, err)
				}
			}
			if err := lease.Extend(t.Context(), time.Minute); err != nil {
				t.Errorf("Extend: %v", err)
			}
			if err := lease.Settle(t.Context(), []byte("v"), time.Hour); err != nil {
				t.Errorf("Settle: %v", err)
			}
			if waits.end(t); name == "switch" && (waits.err != nil || string(waits.claim.Value) != "v") {
				t.Errorf("Wait: %v %q, %v, want settled", waits.claim.State, waits.claim.Value, waits.err)
			}
			if err := other.Release(t.Context()); err != nil {
				t.Errorf("Release: %v", err)
			}
			if err := acquire(t, replicated, keys[1]).Release(t.Context()); err != nil {
				t.Errorf("Release: %v", err)
			}
		})
	}
}
