package quorum_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/lock/quorum"
)

// proxied returns a proxy before every node, and clients that go through them.
func (nodes masters) proxied(t *testing.T, opts ...func(*redis.Options)) ([]*redistest.Proxy, []redis.UniversalClient) {
	proxies, clients := make([]*redistest.Proxy, len(nodes)), make([]redis.UniversalClient, len(nodes))
	for i, node := range nodes {
		proxies[i] = redistest.NewProxy(t, node.Addr())
		clients[i] = proxies[i].Client(t, append([]func(*redis.Options){patient}, opts...)...)
	}
	return proxies, clients
}

// No acquisition waits for a node that stands still: it would take an hour.
//
// fault: 1 of 5 stopped
func TestQuorumOneOfFiveStopped(t *testing.T) {
	t.Parallel()
	servers := redistest.StartMasters(t, 5)
	nodes := realMasters(servers)
	nodes.load(t)
	q := newQuorum(t, nodes.clients(t), lock.WithOpTimeout(time.Hour), lock.WithTTL(2*time.Hour))
	for round := range 2 {
		for i := range 100 {
			release(t, acquireQuorum(t, q, fmt.Sprint(round, i)))
		}
		servers[1].Pause(t)
	}
	masters{nodes[0], nodes[2], nodes[3], nodes[4]}.awaitKeys(t, 0)
	servers[1].Resume(t)
	closeQuorum(t, q)
	nodes.awaitKeys(t, 0)
}

// fault: 3 of 5 stopped
func TestQuorumThreeOfFiveStopped(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stop, goOn func(*redistest.Server, testing.TB)
	}{
		"paused": {(*redistest.Server).Pause, (*redistest.Server).Resume},
		"killed": {(*redistest.Server).Kill, (*redistest.Server).Restart},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := redistest.StartMasters(t, 5)
			nodes := realMasters(servers)
			nodes.load(t)
			q, rival := newQuorum(t, nodes.clients(t), lock.WithOpTimeout(time.Second)), newQuorum(t, nodes.clients(t))
			held := acquireQuorum(t, rival, "held")
			nodes.awaitKeys(t, 1)
			for _, server := range servers[:3] {
				test.stop(server, t)
			}
			for _, key := range []string{"free", "held"} { // of what is held, no majority can tell either
				if _, ok, err := q.TryAcquire(t.Context(), key); ok || err == nil {
					t.Errorf("TryAcquire of what is %s: %v, %v, want an error", key, ok, err)
				}
			}
			nodes[3:].awaitKeys(t, 1)
			for _, server := range servers[:3] {
				test.goOn(server, t)
			}
			release(t, held)
			closeQuorum(t, rival)
			closeQuorum(t, q)
			nodes.awaitKeys(t, 0)
		})
	}
}

// onThree takes a key while two nodes have not answered yet, so that three of five have granted it.
func (nodes masters) onThree(t *testing.T, opts ...lock.Option) *quorum.Lease {
	t.Helper()
	proxies, clients := nodes.proxied(t)
	q := newQuorum(t, clients, opts...)
	for _, p := range proxies[3:] {
		t.Cleanup(p.HoldRequest(redistest.Named("SET")).Lift)
	}
	lease := acquireQuorum(t, q, "k")
	nodes[:3].awaitKeys(t, 1)
	return lease
}

// Three of five masters have granted a lease, and one of them is killed. Without its claims it grants the key again, which
// [quorum.Quorum] warns of.
//
// fault: a quorum node restarts empty
func TestQuorumNodeRestarts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args    []string
		granted bool // to a rival
	}{
		"empty":          {nil, true},
		"with its claim": {[]string{"--appendonly", "yes", "--appendfsync", "always"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := redistest.StartMasters(t, 5, test.args...)
			nodes := realMasters(servers)
			nodes.load(t)
			lease, rival := nodes.onThree(t), newQuorum(t, nodes.clients(t))
			if _, ok, err := rival.TryAcquire(t.Context(), "k"); ok || err != nil {
				t.Fatalf("a rival: %v, %v, want false, nil", ok, err)
			}
			nodes[3:].awaitKeys(t, 0)
			servers[2].Kill(t)
			servers[2].Restart(t)
			_, ok, err := rival.TryAcquire(t.Context(), "k")
			if ok != test.granted || err != nil {
				t.Errorf("a rival after the restart: %v, %v, want %v, nil", ok, err, test.granted)
			}
			if err := lease.Extend(t.Context(), time.Minute); errors.Is(err, lock.ErrLost) != test.granted {
				t.Errorf("the first one's next renewal: %v", err)
			}
		})
	}
}

// fault: 1 of 5 stopped
func TestQuorumIsRenewedByAMajority(t *testing.T) {
	inBubble(t, func(t *testing.T, b *quorumBubble) {
		q := b.quorum(t)
		start := time.Now()
		lease := acquireQuorum(t, q, "k")
		synctest.Wait()
		time.Sleep(time.Second)
		for i := range 10 { // any two miss a renewal at the most, then another two: a third one would be too late
			b.silence(2*i%5, (2*i+1)%5)
			time.Sleep(ttl / 4)
			b.silence()
			time.Sleep(ttl / 2)
		}
		b.silence(0, 1)
		time.Sleep(10*ttl - time.Since(start))
		synctest.Wait()
		// Each master's claim is renewed on its own, a third of its length after the last time.
		if got, most := lease.Until().Sub(start), 10*ttl+valid; got <= most-ttl/3 || got > most {
			t.Errorf("Until is %v after the start, want up to %v less than %v", got, ttl/3, most)
		}
		time.Sleep(10 * ttl)
		synctest.Wait()
		if got := b.holding(); got != 3 {
			t.Errorf("%d nodes have the claim, want the three that answer", got)
		}
		if err := lease.Context().Err(); err != nil {
			t.Errorf("the context is done: %v", context.Cause(lease.Context()))
		}
		release(t, lease)
	})
}

// fault: 3 of 5 stopped
func TestQuorumIsNotRenewedByAMinority(t *testing.T) {
	inBubble(t, func(t *testing.T, b *quorumBubble) {
		q := b.quorum(t)
		start := time.Now()
		lease := acquireQuorum(t, q, "k")
		time.Sleep(ttl) // renewed at 3 s, 6 s and 9 s
		synctest.Wait()
		b.silence(0, 2, 4)
		<-lease.Context().Done()
		if got, want := time.Since(start), ttl+valid; got != want {
			t.Errorf("the context ended after %v, want %v", got, want)
		}
		wantErr(t, "cause", context.Cause(lease.Context()), lock.ErrLost)
		if got := b.holding(); got != 5 {
			t.Errorf("%d nodes have the claim when the context is done, want all", got)
		}
	})
}

// fault: the caller's ctx cancelled before, during, after
func TestQuorumExtendHeedsItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, b *quorumBubble) {
		lease := acquireQuorum(t, b.quorum(t), "k")
		until := lease.Until()
		b.silence(0, 1, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		wantErr(t, "Extend", lease.Extend(ctx, time.Minute), context.DeadlineExceeded)
		if got := time.Since(start); got != 100*time.Millisecond {
			t.Errorf("it took %v", got)
		}
		if got := lease.Until(); got != until {
			t.Errorf("Until has moved by %v", got.Sub(until))
		}
		b.silence()
		release(t, lease)
	})
}

// A slow node gets the claim too, although the caller has its lease and has cancelled its context long before.
//
// fault: the caller's ctx cancelled before, during, after
func TestQuorumClaimReachesSlowNodes(t *testing.T) {
	inBubble(t, func(t *testing.T, b *quorumBubble) {
		q := b.quorum(t)
		for _, slow := range b.slow[3:] {
			slow.dial.Store(int64(100 * time.Millisecond))
		}
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		lease, ok, err := q.TryAcquire(ctx, "k")
		cancel()
		if !ok || err != nil || time.Since(start) != 0 {
			t.Fatalf("TryAcquire: %v, %v, after %v", ok, err, time.Since(start))
		}
		if got := b.holding(); got != 3 {
			t.Errorf("%d nodes have the claim at once, want the three that are fast", got)
		}
		time.Sleep(400 * time.Millisecond) // less than the time for one operation
		synctest.Wait()
		if got := b.holding(); got != 5 {
			t.Errorf("%d nodes have the claim, want all", got)
		}
		release(t, lease)
	})
}

// A claim that is granted late, when the lease is lost already, is not renewed: its holder may never call Release.
//
// fault: claim arrives after the caller gave up
func TestQuorumLateGrantOfALostLease(t *testing.T) {
	inBubble(t, func(t *testing.T, b *quorumBubble) {
		q := b.quorum(t)
		for _, slow := range b.slow[3:] {
			slow.dial.Store(int64(300 * time.Millisecond))
		}
		lease := acquireQuorum(t, q, "k")
		for _, node := range b.nodes[:3] {
			node.server.FlushAll()
		}
		wantErr(t, "Extend", lease.Extend(t.Context(), ttl), lock.ErrLost)
		wantErr(t, "cause", context.Cause(lease.Context()), lock.ErrLost)
		time.Sleep(time.Second)
		if got := b.holding(); got != 2 {
			t.Errorf("%d nodes have the claim, want the two that are slow", got)
		}
		time.Sleep(2 * ttl)
		if got := b.holding(); got != 0 {
			t.Errorf("%d nodes still have the claim", got)
		}
	})
}

// A claim that arrives late is released if no lease needs it any more.
//
// fault: claim arrives after the caller gave up
func TestQuorumLateAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		late int                                                     // so many nodes
		held int                                                     // by another, so many
		try  func(ctx context.Context, q *quorum.Quorum) (err error) // nil if that ends as it has to
	}{
		"granted": {2, 0, func(ctx context.Context, q *quorum.Quorum) error {
			lease, ok, err := q.TryAcquire(ctx, "k")
			if !ok || err != nil {
				return fmt.Errorf("%v, %w", ok, err)
			}
			return lease.Release(ctx)
		}},
		"denied": {2, 3, func(ctx context.Context, q *quorum.Quorum) error {
			if _, ok, err := q.TryAcquire(ctx, "k"); ok || err != nil {
				return fmt.Errorf("%v, %w", ok, err)
			}
			return nil
		}},
		"cancelled": {3, 0, func(ctx context.Context, q *quorum.Quorum) error {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(50*time.Millisecond, cancel)
			if _, ok, err := q.TryAcquire(ctx, "k"); ok || !errors.Is(err, context.Canceled) {
				return fmt.Errorf("%v, %w", ok, err)
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onMasters(t, func(t *testing.T, nodes masters) {
				nodes.load(t)
				proxies, clients := nodes.proxied(t)
				q := newQuorum(t, clients)
				var held []*lock.Lease
				for _, rival := range nodes.lockers(t)[:test.held] {
					held = append(held, acquire(t, rival, "k"))
				}
				var rules []*redistest.Rule
				for _, p := range proxies[5-test.late:] {
					rules = append(rules, p.HoldRequest(redistest.Named("SET")))
				}
				wantErr(t, "TryAcquire", test.try(t.Context(), q), nil)
				for _, lease := range held {
					release(t, lease)
				}
				nodes[:2].awaitKeys(t, 0)
				for _, rule := range rules {
					rule.Wait(t)
					rule.Lift()
				}
				closeQuorum(t, q)
				nodes.awaitKeys(t, 0)
			})
		})
	}
}

func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}

var propSeed = flag.Uint64("quorum.seed", 0, "seed of the property test; 0 takes one by chance")

// tenure is the time in which a client believed that it held the key.
type tenure struct{ from, to time.Time }

// A register guarded by leases loses no update while nodes are paused and killed.
func TestQuorumGuardedRegister(t *testing.T) {
	t.Parallel()
	seed := *propSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-quorum.seed=%d", seed)
	servers := redistest.StartMasters(t, 5, "--appendonly", "yes", "--appendfsync", "always")
	nodes := realMasters(servers)
	nodes.load(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		tenures []tenure
		failed  int
	)
	begun, span := time.Now(), redistest.Rounds(2*time.Second, 5*time.Second)
	enough := func() bool { // a busy machine takes longer for the same
		mu.Lock()
		defer mu.Unlock()
		return time.Since(begun) > span && len(tenures) >= 5
	}
	for i := range 3 {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		q := newQuorum(t, nodes.clients(t), lock.WithTTL(300*time.Millisecond), lock.WithOpTimeout(100*time.Millisecond),
			lock.WithRetry(lock.Retry{Min: 5 * time.Millisecond, Max: 50 * time.Millisecond}))
		wg.Go(func() {
			for ctx.Err() == nil {
				lease, err := q.Acquire(ctx, "k")
				if err != nil {
					mu.Lock()
					failed++
					mu.Unlock()
					continue
				}
				held := tenure{from: time.Now()}
				select {
				case <-lease.Context().Done():
				case <-time.After(upTo(random, 300*time.Millisecond)):
				}
				// The lease may have run out before this goroutine was run again: Until tells when it had to stop.
				held.to = time.Now()
				if until := lease.Until(); until.Before(held.to) {
					held.to = until
				}
				_ = lease.Release(context.WithoutCancel(ctx))
				mu.Lock()
				tenures = append(tenures, held)
				mu.Unlock()
			}
		})
	}
	random, faults := rand.New(rand.NewPCG(seed, 99)), 0
	for ctx.Err() == nil && !enough() { // at most two at a time are away, and none forgets
		away := random.Perm(5)[:2]
		kills := []bool{random.IntN(3) == 0, random.IntN(3) == 0}
		for i, n := range away {
			if faults++; kills[i] {
				servers[n].Kill(t)
			} else {
				servers[n].Pause(t)
			}
		}
		time.Sleep(upTo(random, 400*time.Millisecond))
		for i, n := range away {
			if kills[i] {
				servers[n].Restart(t)
			} else {
				servers[n].Resume(t)
			}
		}
		time.Sleep(upTo(random, 200*time.Millisecond))
	}
	cancel()
	wg.Wait()

	slices.SortFunc(tenures, func(a, b tenure) int { return a.from.Compare(b.from) })
	overlaps, last := 0, time.Time{}
	for _, held := range tenures {
		if held.from.Before(last) && held.from.Before(held.to) {
			overlaps++
			t.Errorf("granted %v before an earlier lease had ended", last.Sub(held.from))
		}
		if held.to.After(last) {
			last = held.to
		}
	}
	t.Logf("%d leases, %d overlaps, %d faults, %d failures to acquire", len(tenures), overlaps, faults, failed)
	if len(tenures) < 5 {
		t.Errorf("only %d leases: that shows nothing", len(tenures))
	}
}
