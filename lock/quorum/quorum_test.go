package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/lock/quorum"
)

// masters are the independent servers of a Quorum.
type masters []redistest.Backend

// onMasters runs test on five miniredis and on five real masters.
func onMasters(t *testing.T, test func(t *testing.T, nodes masters)) {
	t.Run("miniredis", func(t *testing.T) {
		nodes := make(masters, 5)
		for i := range nodes {
			nodes[i] = redistest.Mini(t)
		}
		test(t, nodes)
	})
	t.Run("redis", func(t *testing.T) { test(t, realMasters(redistest.StartMasters(t, 5))) })
}

func realMasters(servers []*redistest.Server) masters {
	nodes := make(masters, len(servers))
	for i, server := range servers {
		nodes[i] = server
	}
	return nodes
}

// clients returns a client of each, with many connections that wait long for an answer: what is late in a test is so
// because the test wants it.
func (nodes masters) clients(t testing.TB) []redis.UniversalClient {
	clients := make([]redis.UniversalClient, len(nodes))
	for i, node := range nodes {
		clients[i] = node.Client(t, patient)
	}
	return clients
}

func patient(o *redis.Options) { o.ReadTimeout, o.PoolSize = 5*time.Minute, 1000 }

// lockers returns a Locker on each alone, in the namespace of the Quorums.
func (nodes masters) lockers(t *testing.T) []*lock.Locker {
	lockers := make([]*lock.Locker, len(nodes))
	for i, node := range nodes {
		lockers[i] = newLocker(t, node.Client(t), lock.WithTTL(time.Minute))
	}
	return lockers
}

// load lets all servers know the scripts.
func (nodes masters) load(t *testing.T) {
	for _, locker := range nodes.lockers(t) {
		load(t, locker)
	}
}

// awaitKeys returns when every one of them has n keys. Leases of newQuorum do not run out meanwhile.
func (nodes masters) awaitKeys(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		i := slices.IndexFunc(nodes, func(node redistest.Backend) bool { return len(node.Keys(t)) != n })
		if i < 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("node %d has the keys %q, want %d", i, nodes[i].Keys(t), n)
		}
	}
}

// newQuorum returns a Quorum that is closed at the end of the test. Neither its leases nor its calls end by themselves
// on a busy machine.
func newQuorum(t testing.TB, clients []redis.UniversalClient, opts ...lock.Option) *quorum.Quorum {
	t.Helper()
	defaults := []lock.Option{lock.WithOpTimeout(time.Minute), lock.WithTTL(time.Minute)}
	q := quorum.New(clients, "test", append(defaults, opts...)...)
	t.Cleanup(func() { closeQuorum(t, q) })
	return q
}

func closeQuorum(t testing.TB, q *quorum.Quorum) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	wantErr(t, "Close", q.Close(ctx), nil)
}

func acquireQuorum(t testing.TB, q *quorum.Quorum, key string) *quorum.Lease {
	t.Helper()
	lease, ok, err := q.TryAcquire(t.Context(), key)
	if err != nil || !ok {
		t.Fatalf("TryAcquire: %v, %v", ok, err)
	}
	return lease
}

func release(t testing.TB, lease interface{ Release(context.Context) error }) {
	t.Helper()
	wantErr(t, "Release", lease.Release(t.Context()), nil)
}

// quorumBubble is five masters in a synctest bubble, and clients of them that a test can slow down.
type quorumBubble struct {
	nodes []*bubble
	slow  []*slowness
}

func newQuorumBubble(t *testing.T) *quorumBubble {
	b := &quorumBubble{}
	for range 5 {
		node, slow := newBubble(t), &slowness{}
		node.direct.AddHook(slow)
		b.nodes, b.slow = append(b.nodes, node), append(b.slow, slow)
	}
	return b
}

// inBubble runs test in a bubble, in parallel with other tests.
func inBubble(t *testing.T, test func(t *testing.T, b *quorumBubble)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newQuorumBubble(t)) })
}

func (b *quorumBubble) quorum(t *testing.T, opts ...lock.Option) *quorum.Quorum {
	clients := make([]redis.UniversalClient, len(b.nodes))
	for i, node := range b.nodes {
		clients[i] = node.client
	}
	return newQuorum(t, clients, append([]lock.Option{lock.WithOpTimeout(500 * time.Millisecond), lock.WithTTL(ttl)}, opts...)...)
}

// silence lets these nodes swallow every command, and no other.
func (b *quorumBubble) silence(silent ...int) {
	for i, node := range b.nodes {
		node.silent.Store(slices.Contains(silent, i))
	}
}

// slowDown makes the network slow for all nodes, once connections stand and the scripts are known.
func (b *quorumBubble) slowDown(t *testing.T, q *quorum.Quorum, request, reply time.Duration) {
	lease := acquireQuorum(t, q, "load")
	synctest.Wait()
	must(t, lease.Extend(t.Context(), time.Minute))
	synctest.Wait()
	release(t, lease)
	synctest.Wait()
	for _, slow := range b.slow {
		slow.request.Store(int64(request))
		slow.reply.Store(int64(reply))
	}
}

// holding counts the nodes that have a key.
func (b *quorumBubble) holding() (n int) {
	for _, node := range b.nodes {
		if len(node.server.Keys()) > 0 {
			n++
		}
	}
	return n
}

// slowness is how long the network takes, in a bubble.
type slowness struct{ dial, request, reply atomic.Int64 }

func (s *slowness) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if err := sleep(ctx, time.Duration(s.dial.Load())); err != nil {
			return nil, err
		}
		return next(ctx, network, addr)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *slowness) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(time.Duration(s.request.Load()))
		err := next(ctx, cmd)
		time.Sleep(time.Duration(s.reply.Load()))
		return err
	}
}

func (s *slowness) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestQuorumWrongConfigurationPanics(t *testing.T) {
	t.Parallel()
	mini := redistest.Mini(t)
	ring := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() { _ = ring.Close() })
	of := func(n int) []redis.UniversalClient {
		clients := make([]redis.UniversalClient, n)
		for i := range clients {
			clients[i] = mini.Client(t)
		}
		return clients
	}
	three := of(3)
	for name, test := range map[string]struct {
		clients   []redis.UniversalClient
		namespace string
		opts      []lock.Option
		want      string
	}{
		"none":   {nil, "n", nil, "quorum.New: 0 clients"},
		"even":   {of(4), "n", nil, "quorum.New: 4 clients"},
		"nil":    {[]redis.UniversalClient{three[0], nil, three[2]}, "n", nil, "lock.New: client is nil"},
		"ring":   {[]redis.UniversalClient{three[0], ring, three[2]}, "n", nil, "lock.New: client is a *redis.Ring"},
		"twice":  {[]redis.UniversalClient{three[0], three[1], three[0]}, "n", nil, "quorum.New: the same client"},
		"option": {three, "n", []lock.Option{lock.WithTTL(time.Second), nil}, "lock.New: option 2 is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.HasPrefix(got, test.want) {
					t.Errorf("panic %q, want one that begins with %q", got, test.want)
				}
			}()
			quorum.New(test.clients, test.namespace, test.opts...)
		})
	}
}

// Each master has the claim and its owner, until it is released.
func TestQuorumTakesAndFreesEverywhere(t *testing.T) {
	t.Parallel()
	onMasters(t, func(t *testing.T, nodes masters) {
		q, rival := newQuorum(t, nodes.clients(t)), newQuorum(t, nodes.clients(t))
		lease, ok, err := q.TryAcquire(lock.NewOwnerContext(t.Context(), "batch-7"), "k")
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		nodes.awaitKeys(t, 1)
		for _, locker := range nodes.lockers(t) {
			info, err := locker.Inspect(t.Context(), locker.StorageKey("k"))
			if info.State != lock.Held || info.Owner != "batch-7" || err != nil {
				t.Errorf("%+v, %v", info, err)
			}
		}
		if _, ok, err := rival.TryAcquire(t.Context(), "k"); ok || err != nil {
			t.Errorf("a rival: %v, %v, want false, nil", ok, err)
		}
		release(t, acquireQuorum(t, rival, "other"))
		for range 2 {
			release(t, lease)
		}
		wantErr(t, "cause after Release", context.Cause(lease.Context()), context.Canceled)
		closeQuorum(t, q)
		closeQuorum(t, rival)
		nodes.awaitKeys(t, 0)
	})
}

// A lease counts from before its claim was sent, however long the network takes.
func TestQuorumUntil(t *testing.T) {
	inBubble(t, func(t *testing.T, b *quorumBubble) {
		q := b.quorum(t, lock.WithoutRenewal())
		b.slowDown(t, q, 100*time.Millisecond, 50*time.Millisecond)
		start := time.Now()
		lease := acquireQuorum(t, q, "k")
		if took := time.Since(start); took != 150*time.Millisecond {
			t.Errorf("TryAcquire took %v, want one round trip", took)
		}
		if got := lease.Until().Sub(start); got != valid {
			t.Errorf("Until is %v after the start, want %v", got, valid)
		}
		extended := time.Now()
		must(t, lease.Extend(t.Context(), time.Minute))
		want := time.Minute - 600*time.Millisecond - 2*time.Millisecond
		if got := lease.Until().Sub(extended); got != want {
			t.Errorf("Until is %v after Extend was called, want %v", got, want)
		}
		<-lease.Context().Done()
		if got := time.Since(extended); got != want {
			t.Errorf("the context ended %v after Extend was called, want %v", got, want)
		}
		if got := b.holding(); got != 5 {
			t.Errorf("%d nodes still have the claim when the context is done, want 5", got)
		}
	})
}

// A claim that was lost does not count for Until, however long it would have lasted.
func TestQuorumUntilLeavesOutLostClaims(t *testing.T) {
	inBubble(t, func(t *testing.T, b *quorumBubble) {
		lease := acquireQuorum(t, b.quorum(t, lock.WithoutRenewal()), "k")
		synctest.Wait() // until all nodes have it
		b.silence(3, 4)
		must(t, lease.Extend(t.Context(), time.Hour))
		time.Sleep(time.Second)
		b.silence()
		b.nodes[0].server.FlushAll()
		start := time.Now()
		must(t, lease.Extend(t.Context(), time.Minute))
		synctest.Wait()
		if got, want := lease.Until().Sub(start), time.Minute-602*time.Millisecond; got != want {
			t.Errorf("Until is %v after the last Extend, want %v", got, want)
		}
		release(t, lease)
		if got := lease.Until(); !got.IsZero() {
			t.Errorf("Until is %v after Release, want zero", got)
		}
	})
}

func TestQuorumAcquire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const wait = 20*time.Second + time.Nanosecond
		b := newQuorumBubble(t)
		q := b.quorum(t, lock.WithRetry(lock.Retry{Min: time.Second, Attempts: 1000}))
		few := b.quorum(t, lock.WithRetry(lock.Retry{Min: time.Millisecond, Attempts: 3}))
		lease := acquireQuorum(t, q, "k")
		if _, err := few.Acquire(t.Context(), "k"); !errors.Is(err, lock.ErrHeld) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("spent attempts: %v, want ErrHeld alone", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		start := time.Now()
		_, err := q.Acquire(ctx, "k")
		if !errors.Is(err, lock.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != wait {
			t.Errorf("a wait that is over: %v after %v, want ErrHeld and DeadlineExceeded after %v", err, time.Since(start), wait)
		}
		if _, err := q.Acquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lock.ErrHeld) {
			t.Errorf("a context that is done beforehand: %v, want its cause alone", err)
		}
		time.AfterFunc(time.Minute, func() { release(t, lease) })
		next, err := q.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatalf("Acquire of a key that is released: %v", err)
		}
		release(t, next)
	})
}

func TestQuorumClose(t *testing.T) {
	inBubble(t, func(t *testing.T, b *quorumBubble) {
		q := b.quorum(t)
		start := time.Now()
		runsOut, released := acquireQuorum(t, q, "a"), acquireQuorum(t, q, "b")
		closeQuorum(t, q)
		if _, _, err := q.TryAcquire(t.Context(), "c"); !errors.Is(err, lock.ErrClosed) {
			t.Errorf("TryAcquire: %v, want ErrClosed", err)
		}
		if _, err := q.Acquire(t.Context(), "c"); !errors.Is(err, lock.ErrClosed) {
			t.Errorf("Acquire: %v, want ErrClosed", err)
		}
		release(t, released)
		<-runsOut.Context().Done()
		if got := time.Since(start); got != valid {
			t.Errorf("the context ended after %v, want %v", got, valid)
		}
		time.Sleep(ttl - valid)
		if got := b.holding(); got != 0 {
			t.Errorf("%d nodes have a claim", got)
		}
	})
}

// What a minority holds does not matter. What a majority holds decides, and stays as it is.
func TestQuorumMeetsWhatIsNoClaim(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		put  func(context.Context, redistest.Backend, *lock.Lease, string) error // under a key that the lease is on
		want error
	}{
		"list": {func(ctx context.Context, node redistest.Backend, _ *lock.Lease, key string) error {
			client := node.Client(t)
			return errors.Join(client.Del(ctx, key).Err(), client.RPush(ctx, key, "foreign").Err())
		}, lock.ErrForeign},
		"settled": {func(ctx context.Context, _ redistest.Backend, lease *lock.Lease, _ string) error {
			return lease.Settle(ctx, []byte("v"), time.Hour)
		}, lock.ErrSettled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onMasters(t, func(t *testing.T, nodes masters) {
				lockers, q := nodes.lockers(t), newQuorum(t, nodes.clients(t))
				key := lockers[0].StorageKey("k")
				dump := func(node redistest.Backend) string { return node.Client(t).Dump(t.Context(), key).Val() }
				var before []string
				put := func(i int) {
					must(t, test.put(t.Context(), nodes[i], acquire(t, lockers[i], "k"), key))
					before = append(before, dump(nodes[i]))
				}
				put(0)
				put(1)
				lease := acquireQuorum(t, q, "k")
				wantErr(t, "Extend", lease.Extend(t.Context(), time.Hour), nil)
				release(t, lease)
				nodes[2:].awaitKeys(t, 0)
				put(2)
				if _, ok, err := q.TryAcquire(t.Context(), "k"); ok || !errors.Is(err, test.want) {
					t.Errorf("on a majority: %v, %v, want %v", ok, err, test.want)
				}
				closeQuorum(t, q)
				nodes[3:].awaitKeys(t, 0)
				for i, want := range before {
					if got := dump(nodes[i]); got != want {
						t.Errorf("node %d has %q, want it untouched", i, got)
					}
				}
			})
		})
	}
}

// A lease lasts as long as a majority has its claim.
func TestQuorumLosesNodes(t *testing.T) {
	t.Parallel()
	onMasters(t, func(t *testing.T, nodes masters) {
		q, lockers := newQuorum(t, nodes.clients(t)), nodes.lockers(t)
		gone, others := acquireQuorum(t, q, "k"), (*quorum.Lease)(nil)
		lose := func(from, to int) {
			nodes.awaitKeys(t, 1)
			for _, node := range nodes[from:to] {
				node.FlushAll(t)
			}
		}
		lose(0, 2)
		wantErr(t, "Extend on three of five", gone.Extend(t.Context(), time.Hour), nil)
		nodes[2].FlushAll(t)
		wantErr(t, "Extend on two of five", gone.Extend(t.Context(), time.Hour), lock.ErrLost)
		wantErr(t, "cause", context.Cause(gone.Context()), lock.ErrLost)
		release(t, gone) // nobody else has held it
		nodes.awaitKeys(t, 0)

		others = acquireQuorum(t, q, "k")
		lose(0, 3)
		for _, locker := range lockers[:3] {
			acquire(t, locker, "k")
		}
		wantErr(t, "Extend when it is another's", others.Extend(t.Context(), time.Hour), lock.ErrLost)
		wantErr(t, "Release when it is another's", others.Release(t.Context()), lock.ErrLost)
		closeQuorum(t, q)
		nodes[:3].awaitKeys(t, 1)
		nodes[3:].awaitKeys(t, 0)
	})
}

// fault: client SIGSTOP longer than the TTL, then SIGCONT. A caller that asks past the end of the lease learns that it is
// over, whether the timers of its claims have fired or not.
func TestEndIsSeenBeforeTheTimersFire(t *testing.T) {
	t.Parallel()
	for name, isOver := range map[string]func(l *quorum.Lease, ctx context.Context) bool{
		"Err":           func(l *quorum.Lease, _ context.Context) bool { return l.Err() == lock.ErrLost },
		"context's Err": func(_ *quorum.Lease, ctx context.Context) bool { return ctx.Err() == context.Canceled },
		"Cause":         func(_ *quorum.Lease, ctx context.Context) bool { return context.Cause(ctx) == lock.ErrLost },
		"context's Done": func(_ *quorum.Lease, ctx context.Context) bool {
			select {
			case <-ctx.Done():
				return true
			default:
				return false
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newQuorumBubble(t).quorum(t, lock.WithoutRenewal())
				var calls sync.WaitGroup
				for n := range 50 {
					calls.Go(func() {
						wakeUp := time.NewTimer(valid) // before those of the claims
						lease, ok, err := q.TryAcquire(t.Context(), strconv.Itoa(n))
						if err != nil || !ok {
							t.Errorf("TryAcquire: %v, %v", ok, err)
							return
						}
						ctx := lease.Context()
						derived, cancel := context.WithCancel(ctx)
						defer cancel()
						<-wakeUp.C
						if !isOver(lease, ctx) || context.Cause(derived) != lock.ErrLost {
							t.Errorf("the lease does not seem to be over; the cause of a derived context: %v", context.Cause(derived))
						}
					})
				}
				calls.Wait()
			})
		})
	}
}
