package lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// The bounds of batches, as internal/pipeline/pacer.go has them.
const (
	maxInFlight = 3
	minBatch    = 16
)

// unhurried lets a test hold batches for as long as it takes: after a tenth of the time for one operation they do not
// count any more. No claim is granted too late then, and no renewal is among the commands that a test counts.
var unhurried = []lock.Option{lock.WithOpTimeout(time.Hour), lock.WithTTL(2 * time.Hour)}

// onProxied runs test on both servers, whose scripts are loaded. The client waits as long as a test holds its answers.
func onProxied(t *testing.T, test func(t *testing.T, b redistest.Backend, p *redistest.Proxy, locker *lock.Locker)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		p := redistest.NewProxy(t, b.Addr())
		load(t, newLocker(t, b.Client(t)))
		test(t, b, p, newLocker(t, p.Client(t, patient), unhurried...))
	})
}

// names returns n keys that begin with prefix.
func names(prefix string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint(prefix, i))
	}
	return keys
}

// onKeys matches the commands about some keys of a Locker.
func onKeys(locker *lock.Locker, keys ...string) redistest.Match {
	stored := map[string]bool{}
	for _, key := range keys {
		stored[locker.StorageKey(key)] = true
	}
	return func(c redistest.Command) bool { return stored[keyOf(c)] }
}

// keyOf returns what a command of this package is about, empty if that is no key.
func keyOf(c redistest.Command) string {
	switch {
	case c.Name == "SET":
		return string(c.Args[0])
	case strings.HasPrefix(c.Name, "EVAL"):
		return string(c.Args[2])
	}
	return ""
}

// sightings counts the commands about each key that arrive at a proxy.
type sightings struct {
	locker *lock.Locker
	mu     sync.Mutex
	seen   map[string]int
	order  []string // in which stored keys were seen first
}

func watch(p *redistest.Proxy, locker *lock.Locker) *sightings {
	s := &sightings{locker: locker, seen: map[string]int{}}
	p.HoldRequest(func(c redistest.Command) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.seen[keyOf(c)]++; s.seen[keyOf(c)] == 1 {
			s.order = append(s.order, keyOf(c))
		}
		return false
	})
	return s
}

func (s *sightings) of(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[s.locker.StorageKey(key)]
}

// first returns the n stored keys that were seen first.
func (s *sightings) first(n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.order[:n])
}

// callers are goroutines that were started together.
type callers struct{ done []chan error }

// start calls do for each of n, one after the other when a command of the one before is queued or sent, or the call has
// returned. Nothing else may use the locker meanwhile. If a call is canceled meanwhile, start may be too early by one.
func start(t *testing.T, locker *lock.Locker, n int, do func(i int) error) *callers {
	t.Helper()
	c := &callers{}
	for i := range n {
		before, done := submitted(locker), make(chan error, 1)
		c.done = append(c.done, done)
		go func() { done <- do(i) }()
		for deadline := time.Now().Add(time.Minute); len(done) == 0 && submitted(locker) == before; {
			if time.Now().After(deadline) {
				t.Fatalf("call %d does not wait for an answer", i)
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
	return c
}

// submitted returns how many commands the locker has queued or sent, so far.
func submitted(locker *lock.Locker) uint64 {
	s := locker.Stats()
	return s.Commands + uint64(s.Queued)
}

// wait returns what the i-th call has.
func (c *callers) wait(t *testing.T, i int) error {
	t.Helper()
	select {
	case err := <-c.done[i]:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("call %d has not returned within a minute", i)
		return nil
	}
}

// succeed waits for all.
func (c *callers) succeed(t *testing.T, what string) {
	t.Helper()
	for i := range c.done {
		if err := c.wait(t, i); err != nil {
			t.Errorf("%s %d: %v", what, i, err)
		}
	}
}

// leases are those that calls to TryAcquire have returned.
type leases struct {
	*callers
	of []*lock.Lease
}

// errHeld says that TryAcquire has returned false.
var errHeld = errors.New("held")

// tryAll takes keys in calls of their own.
func tryAll(t *testing.T, locker *lock.Locker, keys []string) *leases {
	t.Helper()
	l := &leases{of: make([]*lock.Lease, len(keys))}
	l.callers = start(t, locker, len(keys), func(i int) error {
		lease, ok, err := locker.TryAcquire(t.Context(), keys[i])
		if err == nil && !ok {
			err = errHeld
		}
		l.of[i] = lease
		return err
	})
	return l
}

// heldBatches are maxInFlight batches of one command each, whose replies a proxy holds, so that other commands wait.
type heldBatches struct {
	held   []*redistest.Rule
	leases *leases
}

// occupy holds maxInFlight batches until they complete. No other call uses a key with this prefix.
func occupy(t *testing.T, p *redistest.Proxy, locker *lock.Locker, prefix string) *heldBatches {
	t.Helper()
	keys, f := names(prefix, maxInFlight), &heldBatches{}
	for _, key := range keys {
		f.held = append(f.held, p.HoldReply(onKeys(locker, key)))
	}
	f.leases = tryAll(t, locker, keys)
	for _, rule := range f.held {
		rule.Wait(t)
	}
	return f
}

// completeOne lets one batch complete: the others are then sent one at a time.
func (f *heldBatches) completeOne(t *testing.T) {
	t.Helper()
	f.held[0].Lift()
	if err := f.leases.wait(t, 0); err != nil {
		t.Errorf("the call under way: %v", err)
	}
	f.leases.done[0] <- nil // for complete
}

func (f *heldBatches) complete(t *testing.T) {
	t.Helper()
	for _, rule := range f.held {
		rule.Lift()
	}
	f.leases.succeed(t, "the call under way")
}

// acquireAll takes keys, one after the other.
func acquireAll(t *testing.T, locker *lock.Locker, keys []string) (leases []*lock.Lease) {
	t.Helper()
	for _, key := range keys {
		leases = append(leases, acquire(t, locker, key))
	}
	return leases
}

func TestConcurrentCommandsAreSentTogether(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	onProxied(t, func(t *testing.T, _ redistest.Backend, p *redistest.Proxy, locker *lock.Locker) {
		f := occupy(t, p, locker, "under way ")
		const many = 20
		l := tryAll(t, locker, names("k", many))
		if got := len(p.Commands()); got != maxInFlight {
			t.Errorf("%d commands were sent, want %d: the others wait", got, maxInFlight)
		}
		p.Reset()
		f.complete(t)
		l.succeed(t, "TryAcquire")
		if n, rounds := len(p.Commands()), p.RoundTrips(); n != many || rounds > many/3 {
			t.Errorf("%d commands took %d round trips, want %d and no more than a third", n, rounds, many)
		}
	})
}

// A command is sent at once while no other is in flight.
func TestLoneCommandsAreSentAlone(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	onProxied(t, func(t *testing.T, _ redistest.Backend, p *redistest.Proxy, locker *lock.Locker) {
		for range 3 {
			p.Reset()
			if err := acquire(t, locker, "k").Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := p.Commands(); p.RoundTrips() != 2 || !slices.Equal(got, []string{"SET", "EVALSHA"}) {
				t.Errorf("%d round trips: %q", p.RoundTrips(), got)
			}
		}
	})
}

// hookGate is a hook of go-redis that keeps track, and keeps commands back.
type hookGate struct {
	mu        sync.Mutex
	pipelines []int // how many commands each had
	lone      []any // what the context of each lone command has under valueKey
	closed    chan struct{}
	entered   chan struct{}
}

func (g *hookGate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *hookGate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if isOurs(cmd) {
			g.mu.Lock()
			g.lone = append(g.lone, ctx.Value(valueKey{}))
			g.mu.Unlock()
			g.pass()
		}
		return next(ctx, cmd)
	}
}

func (g *hookGate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if isOurs(cmds[0]) {
			g.mu.Lock()
			g.pipelines = append(g.pipelines, len(cmds))
			g.mu.Unlock()
			g.pass()
		}
		return next(ctx, cmds)
	}
}

// isOurs tells whether a command is not one of go-redis, which sets up a connection.
func isOurs(cmd redis.Cmder) bool {
	return cmd.Name() == "set" || strings.HasPrefix(cmd.Name(), "eval")
}

// pass waits until the gate is open.
func (g *hookGate) pass() {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed != nil {
		g.entered <- struct{}{}
		<-closed
	}
}

// close keeps commands back until open is called. Up to 100 may come.
func (g *hookGate) close() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	closed := make(chan struct{})
	g.closed, g.entered = closed, make(chan struct{}, 100)
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.closed = nil
		close(closed)
	})
}

func (g *hookGate) reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pipelines, g.lone = nil, nil
}

// wantBatches checks that n commands went together.
func (g *hookGate) wantBatches(t *testing.T, what string, n int) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	sent, batches := len(g.lone), len(g.lone)+len(g.pipelines)
	for _, size := range g.pipelines {
		sent += size
	}
	if sent != n || batches > n/3 || g.largest() > minBatch {
		t.Errorf("%s: pipelines of %d, and %d alone, want %d in no more than a third", what, g.pipelines, len(g.lone), n)
	}
}

// largest returns how many commands the largest batch had. The caller holds mu.
func (g *hookGate) largest() int { return slices.Max(append([]int{1}, g.pipelines...)) }

// gated returns a Locker on a client that has the gate as its hook.
func gated(t *testing.T, b redistest.Backend, opts ...lock.Option) (*hookGate, *lock.Locker) {
	t.Helper()
	g, client := &hookGate{}, b.Client(t, patient)
	client.AddHook(g)
	locker := newLocker(t, client, slices.Concat(unhurried, opts)...)
	load(t, newLocker(t, b.Client(t)))
	return g, locker
}

func TestHooksSeeTheCallersValues(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g, locker := gated(t, b)
		ctx := context.WithValue(t.Context(), valueKey{}, "the caller's")
		lease, ok, err := locker.TryAcquire(ctx, "k")
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		if err := lease.Release(ctx); err != nil {
			t.Error(err)
		}
		if len(g.lone) != 2 || g.lone[0] != "the caller's" || g.lone[1] != "the caller's" || len(g.pipelines) > 0 {
			t.Errorf("hooks have seen %q, and pipelines of %d", g.lone, g.pipelines)
		}
	})
}

func TestBatchesPassHooks(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		g, locker := gated(t, b)
		for what, do := range map[string]func(*lock.Lease) error{
			"Release": func(l *lock.Lease) error { return l.Release(t.Context()) },
			"Settle":  func(l *lock.Lease) error { return l.Settle(t.Context(), []byte("v"), time.Hour) },
			"Extend":  func(l *lock.Lease) error { return l.Extend(t.Context(), time.Minute) },
		} {
			open := g.close()
			first := tryAll(t, locker, names(what+" first ", maxInFlight))
			then := tryAll(t, locker, names(what+" then ", 20))
			for range maxInFlight {
				<-g.entered
			}
			g.reset()
			open()
			first.succeed(t, "TryAcquire")
			then.succeed(t, "TryAcquire")
			g.wantBatches(t, "TryAcquire", 20)

			open = g.close()
			one := start(t, locker, maxInFlight, func(i int) error { return do(first.of[i]) })
			all := start(t, locker, 20, func(i int) error { return do(then.of[i]) })
			for range maxInFlight {
				<-g.entered
			}
			g.reset()
			open()
			one.succeed(t, what)
			all.succeed(t, what)
			g.wantBatches(t, what, 20)
		}
	})
}

// A hook need not heed contexts. Its callers return all the same, and Close waits for it.
func TestHookThatBlocks(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		g, locker := gated(t, b, lock.WithOpTimeout(2*time.Second))
		open := g.close()
		defer open()
		stays := tryAll(t, locker, names("stays ", 30))
		for i := range stays.done {
			if err := stays.wait(t, i); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("TryAcquire: %v, want DeadlineExceeded", err)
			}
		}
		soon, end := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer end()
		if err := locker.Close(soon); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v while the hook blocks", err)
		}
		open()
		closeWithin(t, locker)
		wantNoClaims(t, b)
	})
}

// While a hook blocks, a caller that cancels returns, whether its command was sent or is queued, and the others stay.
func TestCallerCancelsWhileAHookBlocks(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		g, locker := gated(t, b)
		open := g.close()
		defer open()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cancels := func(keys ...string) *callers {
			return start(t, locker, len(keys), func(i int) error { _, _, err := locker.TryAcquire(ctx, keys[i]); return err })
		}
		sent := cancels("sent")
		<-g.entered
		stays := tryAll(t, locker, names("stays ", 30))
		queued := cancels("queued")
		cancel()
		for what, c := range map[string]*callers{"sent": sent, "queued": queued} {
			if err := c.wait(t, 0); !errors.Is(err, context.Canceled) {
				t.Errorf("TryAcquire, %s: %v, want Canceled", what, err)
			}
		}
		for i, done := range stays.done {
			if len(done) > 0 {
				t.Errorf("call %d, whose caller waits, has returned", i)
			}
		}
		open()
		stays.succeed(t, "TryAcquire")
		for _, lease := range stays.of {
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("Release: %v", err)
			}
		}
		closeWithin(t, locker)
		wantNoClaims(t, b)
	})
}

// fault: replica stopped, WithReplicas(1)
func TestBatchHasOneWait(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	master, replica, p := startReplicated(t)
	locker := newLocker(t, p.Client(t, patient), append(unhurried, lock.WithReplicas(1, 10*time.Minute))...)
	load(t, newLocker(t, master.Client(t)))
	releases := acquireAll(t, locker, names("released ", 3))
	p.Reset()
	f := occupy(t, p, locker, "under way ")
	l := tryAll(t, locker, names("k", 8))
	eventually(t, "each batch has its WAIT", func() bool { return len(p.Commands()) == 2*maxInFlight })
	p.Reset()
	f.complete(t)
	l.succeed(t, "TryAcquire")
	sent, rounds := fmt.Sprint(p.Commands()), p.RoundTrips()
	if strings.Count(sent, "SET") != 8 || strings.Count(sent, "WAIT") != rounds || rounds > 4 {
		t.Errorf("%d round trips: %s", rounds, sent)
	}

	// What need not be on the replica does not stand behind what has to.
	replica.Pause(t)
	p.Reset()
	waits := tryAll(t, locker, names("waits ", 3*maxInFlight))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("sent: %v", p.Commands())
		}
	})
	eventually(t, "all batches wait", func() bool { return strings.Count(fmt.Sprint(p.Commands()), "WAIT") == maxInFlight })
	for _, lease := range releases {
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
	for i, done := range waits.done {
		if len(done) > 0 {
			t.Errorf("claim %d has not waited for the replica: %v", i, <-done)
		}
	}
	replica.Resume(t)
	waits.succeed(t, "TryAcquire")
}

// A batch has no more than 256 KiB, unless it is a single command.
func TestLargeCommands(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	for name, c := range map[string]struct {
		size        int
		least, most int // commands in the largest of the batches of 12
	}{
		"are not together":                    {200 << 10, 1, 1},
		"are together if they are small":      {100 << 10, 2, 2},
		"are together if they are very small": {10 << 10, 3, 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				t.Parallel()
				g, locker := gated(t, b)
				large := acquireAll(t, locker, names("large ", 12))
				open := g.close()
				under := tryAll(t, locker, names("under way ", maxInFlight))
				settles := start(t, locker, len(large), func(i int) error {
					return large[i].Settle(t.Context(), bytes.Repeat([]byte("x"), c.size), time.Hour)
				})
				g.reset()
				open()
				under.succeed(t, "TryAcquire")
				settles.succeed(t, "Settle")
				g.mu.Lock()
				defer g.mu.Unlock()
				if got := g.largest(); got < c.least || got > c.most {
					t.Errorf("the largest batch had %d, want %d to %d", got, c.least, c.most)
				}
			})
		})
	}
	t.Run("are alone", func(t *testing.T) {
		t.Parallel()
		onProxied(t, func(t *testing.T, _ redistest.Backend, p *redistest.Proxy, locker *lock.Locker) {
			large := acquire(t, locker, "large")
			f := occupy(t, p, locker, "under way ")
			slow := p.HoldRequest(onKeys(locker, "large"))
			settle := start(t, locker, 1, func(int) error { return large.Settle(t.Context(), make([]byte, 1<<20), time.Hour) })
			claim := tryAll(t, locker, []string{"small"})
			f.completeOne(t)
			slow.Wait(t)
			f.held[1].Lift()
			claim.succeed(t, "TryAcquire, in the next batch,")
			if len(settle.done[0]) > 0 {
				t.Error("Settle has returned")
			}
			slow.Lift()
			settle.succeed(t, "Settle")
			f.complete(t)
		})
	})
}

// Not parallel: it counts goroutines.
func TestThousandsAtOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		client := b.Client(t, patient, func(o *redis.Options) { o.PoolSize = 10 })
		locker := newLocker(t, client, unhurried...)
		load(t, locker)
		before := runtime.NumGoroutine()
		var all sync.WaitGroup
		for i := range redistest.Rounds(2000, 10_000) {
			all.Go(func() {
				lease, ok, err := locker.TryAcquire(t.Context(), fmt.Sprint(i))
				if err != nil || !ok {
					t.Errorf("TryAcquire: %v, %v", ok, err)
					return
				}
				if err := lease.Release(t.Context()); err != nil {
					t.Errorf("Release: %v", err)
				}
			})
		}
		all.Wait()
		wantNoClaims(t, b)
		eventually(t, "the Locker's goroutines are gone", func() bool { // the connections of both sides stay
			var stacks bytes.Buffer
			err := pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			return err == nil && !strings.Contains(stacks.String(), "onceguard/lock.(")
		})
		closeWithin(t, locker)
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		eventually(t, "the goroutines are gone", func() bool { return runtime.NumGoroutine() <= before })
	})
}

// All subtests share one cluster without replicas: a master that is paused stays a master.
func TestClusterBatches(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	c := redistest.StartCluster(t, 3, 0)
	keys := map[*redistest.Server][]string{}
	for _, s := range c.Servers() {
		keys[s] = siblings(lock.New(c.Client(t), "test"), keyOn(t, c, s, "batches"), 40)
	}
	newClient := func(t *testing.T) (redistest.Proxies, *redis.ClusterClient) {
		proxies := redistest.NewProxies(t, c.Servers()...)
		return proxies, c.Client(t, func(o *redis.ClusterOptions) { o.Dialer, o.ReadTimeout = proxies.Dial, 5*time.Minute })
	}
	t.Run("by owner", func(t *testing.T) { testClusterBatchesByOwner(t, c, keys, newClient) })
	t.Run("moved", func(t *testing.T) { testClusterBatchIsMoved(t, c, newClient) })
	t.Run("paused", func(t *testing.T) { testClusterMasterIsPaused(t, c, keys, newClient) })
}

type newClusterClient func(*testing.T) (redistest.Proxies, *redis.ClusterClient)

func testClusterBatchesByOwner(
	t *testing.T, c *redistest.Cluster, keys map[*redistest.Server][]string, newClient newClusterClient,
) {
	proxies, client := newClient(t)
	locker := newLocker(t, client, unhurried...)
	under := map[*redistest.Server]*leases{}
	var held []*redistest.Rule
	for s, keys := range keys {
		acquire(t, locker, keys[0]) // from now on it knows where the slot is
		rule := proxies[s].HoldReply(onKeys(locker, keys[1:maxInFlight+1]...))
		held = append(held, rule)
		under[s] = tryAll(t, locker, keys[1:maxInFlight+1])
		for range maxInFlight { // each node has batches of its own
			rule.Wait(t)
		}
	}
	queued := map[*redistest.Server]*leases{}
	for s, keys := range keys {
		queued[s] = tryAll(t, locker, keys[maxInFlight+1:maxInFlight+21])
		proxies[s].Reset()
	}
	for _, rule := range held {
		rule.Lift()
	}
	for s := range keys {
		under[s].succeed(t, "TryAcquire")
		queued[s].succeed(t, "TryAcquire")
		if n, rounds := strings.Count(fmt.Sprint(proxies[s].Commands()), "SET"), proxies[s].RoundTrips(); n != 20 || rounds > 20/3 {
			t.Errorf("%d claims in %d round trips, want 20 in no more than a third", n, rounds)
		}
		for _, l := range [][]*lock.Lease{under[s].of, queued[s].of} {
			for _, lease := range l {
				if err := lease.Release(t.Context()); err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		}
	}
}

// fault: Cluster MOVED/ASK while held
func testClusterBatchIsMoved(t *testing.T, c *redistest.Cluster, newClient newClusterClient) {
	for name, opts := range map[string][]lock.Option{"plain": nil, "fencing": {lock.WithFencing()}} {
		proxies, client := newClient(t)
		locker := newLocker(t, client, slices.Concat(opts, unhurried)...)
		key := keyOn(t, c, c.Servers()[0], "moves"+name)
		keys := siblings(locker, key, 20)
		acquire(t, locker, key)
		from, to := c.Servers()[0], c.Servers()[1]
		rule := proxies[from].HoldReply(onKeys(locker, keys[:maxInFlight]...))
		under := tryAll(t, locker, keys[:maxInFlight])
		for range maxInFlight {
			rule.Wait(t)
		}
		queued := tryAll(t, locker, keys[maxInFlight:16])
		c.BeginMove(t, locker.StorageKey(key), to)
		c.EndMove(t, locker.StorageKey(key), to)
		rule.Lift()
		under.succeed(t, name+": TryAcquire")
		queued.succeed(t, name+": TryAcquire of what has moved")
		for _, key := range keys[maxInFlight:16] {
			wantKeys(t, to, locker, true, key)
		}
		eventually(t, "the client knows the new owner", func() bool { // go-redis asks in the background
			node, err := client.MasterForKey(t.Context(), locker.StorageKey(key))
			return err == nil && node.Options().Addr == to.Addr()
		})
		acquire(t, locker, keys[16])
		proxies[from].Reset()
		tryAll(t, locker, keys[17:]).succeed(t, name+": TryAcquire")
		if got := strings.Count(fmt.Sprint(proxies[from].Commands()), "SET"); got > 0 {
			t.Errorf("%s: the old owner was sent %q", name, proxies[from].Commands())
		}
	}
}

// fault: a Cluster's master is paused
func testClusterMasterIsPaused(
	t *testing.T, c *redistest.Cluster, keys map[*redistest.Server][]string, newClient newClusterClient,
) {
	_, client := newClient(t)
	known, fresh := newLocker(t, client, unhurried...), newLocker(t, client, unhurried...)
	paused, others := c.Servers()[2], c.Servers()[:2]
	for _, keys := range keys {
		if err := acquire(t, known, keys[30]).Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	paused.Pause(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, locker := range map[string]*lock.Locker{"whose slots are known": known, "whose slots are not": fresh} {
		start(t, locker, minBatch, func(i int) error {
			_, _, err := locker.TryAcquire(ctx, keys[paused][i])
			return err
		})
		for _, s := range others {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // batches count as stalled after six
			for _, key := range keys[s][31:35] {
				lease, ok, err := locker.TryAcquire(ctx, key)
				if !ok || err != nil {
					t.Errorf("keys %s: TryAcquire: %v, %v, want true, nil", name, ok, err)
					continue
				}
				if err := lease.Release(ctx); err != nil {
					t.Error(err)
				}
			}
			cancel()
		}
	}
	cancel()
	paused.Resume(t)
}
