package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// byMessage makes a Locker so slow to look by itself that a test can only pass if a message wakes it.
var byMessage = lock.WithRetry(lock.Retry{Min: time.Hour, Max: time.Hour})

// waiting is a call of Wait or Acquire in the background.
type waiting struct {
	claim lock.Claim
	err   error
	took  time.Duration
	done  chan struct{}
}

func inBackground(call func() (lock.Claim, error)) *waiting {
	w := &waiting{done: make(chan struct{})}
	start := time.Now()
	go func() {
		defer close(w.done)
		w.claim, w.err = call()
		w.took = time.Since(start)
	}()
	return w
}

func waitFor(ctx context.Context, l *lock.Locker, key string) *waiting {
	return inBackground(func() (lock.Claim, error) { return l.Wait(ctx, key) })
}

func acquireFor(ctx context.Context, l *lock.Locker, key string) *waiting {
	return inBackground(func() (lock.Claim, error) {
		lease, err := l.Acquire(ctx, key)
		return lock.Claim{Lease: lease}, err
	})
}

// end returns when the call has.
func (w *waiting) end(t *testing.T) *waiting {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(20 * time.Second):
		t.Fatal("it still waits")
	}
	return w
}

// awaitSubscribers returns when the key's channel has n subscribers.
func awaitSubscribers(t *testing.T, b redistest.Backend, channel string, n int64) {
	t.Helper()
	client := b.Client(t)
	for deadline := time.Now().Add(20 * time.Second); ; {
		got, err := client.PubSubNumSub(t.Context(), channel).Result()
		if err != nil {
			t.Fatal(err)
		}
		if got[channel] == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d subscribers of %s, want %d", got[channel], channel, n)
		}
	}
}

func TestWaitForWhatIsThere(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locker := newLocker(t, b.Client(t))
		if claim, err := locker.Wait(t.Context(), "free"); err != nil || claim.State != lock.Free {
			t.Errorf("free: %v, %v", claim.State, err)
		}
		if err := acquire(t, locker, "settled").Settle(t.Context(), []byte("v"), time.Hour); err != nil {
			t.Fatal(err)
		}
		claim, err := locker.Wait(t.Context(), "settled")
		if err != nil || claim.State != lock.Settled || string(claim.Value) != "v" {
			t.Errorf("settled: %v %q, %v", claim.State, claim.Value, err)
		}
		if _, err := locker.Acquire(t.Context(), "settled"); !errors.Is(err, lock.ErrSettled) {
			t.Errorf("Acquire of it: %v, want ErrSettled", err)
		}
		if _, err := locker.Claim(t.Context(), "abandoned", []byte("note"), time.Hour); err != nil {
			t.Fatal(err)
		}
		b.Elapse(t, 11*time.Second)
		claim, err = locker.Wait(t.Context(), "abandoned")
		if err != nil || claim.State != lock.Abandoned || string(claim.Note) != "note" {
			t.Errorf("abandoned: %v %q, %v", claim.State, claim.Note, err)
		}
		if keys := b.Keys(t); len(keys) != 2 {
			t.Errorf("keys %q: Wait must take none", keys)
		}
	})
}

// Each way to end a claim wakes its waiters, on a server of any kind, in any process.
func TestMessageWakes(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*lock.Locker, *lock.Lease) error{
		"release": func(_ *lock.Locker, l *lock.Lease) error { return l.Release(context.Background()) },
		"settle": func(_ *lock.Locker, l *lock.Lease) error {
			return l.Settle(context.Background(), []byte("v"), time.Hour)
		},
		"forget": func(l *lock.Locker, _ *lock.Lease) error { return forget(context.Background(), l, "k") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				t.Parallel()
				holder, locker := newLocker(t, b.Client(t)), newLocker(t, b.Client(t), byMessage)
				lease := acquire(t, holder, "k")
				waits, takes := waitFor(t.Context(), locker, "k"), acquireFor(t.Context(), locker, "k")
				awaitMark(t, b, locker.StorageKey("k"))
				if err := end(holder, lease); err != nil {
					t.Error(err)
				}
				switch takes.end(t); {
				case name == "settle" && !errors.Is(takes.err, lock.ErrSettled):
					t.Errorf("Acquire: %v, want ErrSettled", takes.err)
				case name != "settle" && takes.err != nil:
					t.Errorf("Acquire: %v", takes.err)
				case name != "settle":
					if err := takes.claim.Lease.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
				want := map[string]lock.State{"settle": lock.Settled}[name]
				if waits.end(t); waits.err != nil || waits.claim.State != max(want, lock.Free) {
					t.Errorf("Wait: %v, %v", waits.claim.State, waits.err)
				}
			})
		})
	}
}

// awaitMark returns when the claim under the key asks its holder to publish its end.
func awaitMark(t *testing.T, b redistest.Backend, storageKey string) {
	t.Helper()
	awaitSubscribers(t, b, storageKey, 1)
	for deadline := time.Now().Add(20 * time.Second); ; {
		if stored, ok := b.Raw(t, storageKey); ok && stored[20] == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the claim is not marked as awaited")
		}
	}
}

func TestNothingIsPublishedWhereNobodyWaits(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locker := newLocker(t, b.Client(t))
		all := b.Client(t).PSubscribe(t.Context(), "*")
		t.Cleanup(func() { _ = all.Close() })
		if _, err := all.Receive(t.Context()); err != nil { // the subscription
			t.Fatal(err)
		}
		if err := acquire(t, locker, "released").Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := acquire(t, locker, "settled").Settle(t.Context(), nil, time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := b.Client(t).Publish(t.Context(), "the end", "").Err(); err != nil {
			t.Fatal(err)
		}
		if m, err := all.ReceiveMessage(t.Context()); err != nil || m.Channel != "the end" {
			t.Errorf("published: %v, %v", m, err)
		}
	})
}

// fault: missed wake-up, subscriber reconnects
func TestMissedMessage(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, _, rival *lock.Locker) {
		locker := newLocker(t, p.Client(t))
		lease := acquire(t, rival, "k")
		deaf := p.SwallowReply(redistest.Named("SUBSCRIBE"))
		waits := waitFor(t.Context(), locker, "k")
		deaf.Wait(t)
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if waits.end(t); waits.err != nil || waits.claim.State != lock.Free {
			t.Errorf("Wait: %v, %v, want free", waits.claim.State, waits.err)
		}
	})
}

// fault: missed wake-up, subscriber reconnects
func TestSubscriberReconnects(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, _, rival *lock.Locker) {
		locker := newLocker(t, p.Client(t), byMessage)
		lease := acquire(t, rival, "k")
		waits := waitFor(t.Context(), locker, "k")
		awaitMark(t, b, locker.StorageKey("k"))
		again := p.HoldReply(redistest.Named("SUBSCRIBE"))
		p.Cut()
		again.Wait(t)
		if err := lease.Release(t.Context()); err != nil { // while nobody hears it
			t.Fatal(err)
		}
		again.Lift()
		if waits.end(t); waits.err != nil || waits.claim.State != lock.Free {
			t.Errorf("Wait: %v, %v, want free: what was missed is looked for", waits.claim.State, waits.err)
		}
	})
}

// A pub/sub connection that has fallen silent without an error is closed.
func TestSilentSubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		holder, locker := b.locker(t), b.locker(t, byMessage)
		lease := acquire(t, holder, "k")
		waits := waitFor(t.Context(), locker, "k")
		synctest.Wait()
		b.mute() // those connections that have subscribed by now
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		released := time.Now()
		if waits.end(t); waits.err != nil || !time.Now().Equal(released) {
			t.Errorf("woken %v after the release: %v", time.Since(released), waits.err)
		}
	})
}

// fault: 1,000 waiters, the holder dies
func TestThousandWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		b := newBubble(t)
		holder, locker := b.locker(t), b.locker(t)
		lease := acquire(t, holder, "k")
		lease.Abandon()

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var winners, losers atomic.Int32
		waiters := make([]*waiting, n)
		before := b.total()
		for i := range waiters {
			waiters[i] = inBackground(func() (lock.Claim, error) {
				lease, err := locker.Acquire(ctx, "k")
				switch {
				case err == nil:
					winners.Add(1)
				case errors.Is(err, lock.ErrHeld) && errors.Is(err, context.DeadlineExceeded):
					losers.Add(1)
				default:
					t.Error(err)
				}
				return lock.Claim{Lease: lease}, err
			})
		}
		start := time.Now()
		<-lease.Context().Done()
		time.Sleep(time.Second) // what is taken off for drift, and the next look
		synctest.Wait()
		if got := winners.Load(); got != 1 {
			t.Fatalf("%d winners %v after the lease's start, want 1", got, time.Since(start))
		}
		died := b.total() - before
		for _, w := range waiters {
			<-w.done
		}
		all := b.total() - before
		t.Logf("%d waiters: %d commands until the dead holder's lease had ended and one had won, %d in a minute", n, died, all)
		if winners.Load() != 1 || losers.Load() != n-1 {
			t.Errorf("%d winners and %d losers", winners.Load(), losers.Load())
		}
		if died > 60 || all > 300 {
			t.Error("that is too many commands")
		}
		for _, w := range waiters {
			if w.err == nil {
				if err := w.claim.Lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func TestWaitersAreServedInTheirOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, byMessage)
		lease := acquire(t, locker, "k")
		var waiters []*waiting
		for range 5 {
			waiters = append(waiters, acquireFor(t.Context(), locker, "k"))
			synctest.Wait()
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, w := range waiters {
			before := b.total()
			if <-w.done; w.err != nil {
				t.Fatal(w.err)
			}
			synctest.Wait()
			for _, next := range waiters[i+1:] {
				select {
				case <-next.done:
					t.Fatalf("waiter %d holds the key together with a later one", i)
				default:
				}
			}
			if err := w.claim.Lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := b.total() - before; i > 0 && i < len(waiters)-1 && got > 4 {
				t.Errorf("from one waiter to the next: %d commands", got)
			}
		}
	})
}

func TestWaitEnds(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(context.Context, *lock.Locker) error{
		"Acquire": func(ctx context.Context, l *lock.Locker) error { _, err := l.Acquire(ctx, "k"); return err },
		"Wait":    func(ctx context.Context, l *lock.Locker) error { _, err := l.Wait(ctx, "k"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				acquire(t, b.locker(t), "k")
				locker := b.locker(t)

				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				start := time.Now()
				if err := call(ctx, locker); !errors.Is(err, lock.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a deadline: %v", err)
				}
				if got := time.Since(start); got != 3*time.Second {
					t.Errorf("it took %v", got)
				}
				cancel()
				if err := call(ctx, locker); errors.Is(err, lock.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a context that was done before: %v", err)
				}
				few := b.locker(t, lock.WithRetry(lock.Retry{Attempts: 3}))
				if err := call(t.Context(), few); !errors.Is(err, lock.ErrHeld) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("spent looks: %v", err)
				}
				one := b.locker(t, lock.WithRetry(lock.Retry{Attempts: 1}))
				start = time.Now()
				if err := call(t.Context(), one); !errors.Is(err, lock.ErrHeld) || time.Since(start) != 0 {
					t.Errorf("one look: %v after %v", err, time.Since(start))
				}

				errs := make(chan error)
				go func() { errs <- call(t.Context(), locker) }()
				synctest.Wait()
				closeWithin(t, locker)
				if err := <-errs; !errors.Is(err, lock.ErrClosed) {
					t.Errorf("closed: %v", err)
				}
				if err := call(t.Context(), locker); !errors.Is(err, lock.ErrClosed) {
					t.Errorf("closed before: %v", err)
				}
			})
		})
	}
}

// A waiter that gives up does not delay the next one, and leaves nothing behind.
func TestWaiterGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, byMessage)
		lease := acquire(t, locker, "k")
		ctx, cancel := context.WithCancel(t.Context())
		first := acquireFor(ctx, locker, "k")
		synctest.Wait()
		second := acquireFor(t.Context(), locker, "k")
		synctest.Wait()
		cancel()
		if <-first.done; !errors.Is(first.err, lock.ErrHeld) || !errors.Is(first.err, context.Canceled) {
			t.Errorf("the one that gave up: %v", first.err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if <-second.done; second.err != nil {
			t.Fatal(second.err)
		}
		if err := second.claim.Lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if keys, channels := b.server.Keys(), b.server.PubSubChannels("*"); len(keys)+len(channels) > 0 {
			t.Errorf("left: keys %q, channels %q", keys, channels)
		}
	})
}

// A waiter gives up while a poll takes the key for it: the next waiter gets the key.
func TestWaiterGivesUpWhileItsPollIsSent(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, _, rival *lock.Locker) {
		locker := newLocker(t, p.Client(t, patient), byMessage)
		lease := acquire(t, rival, "k")
		ctx, cancel := context.WithCancel(t.Context())
		subscribed := p.HoldReply(redistest.Nth(2, script)) // of the look when messages arrive; the next is by a message
		first := acquireFor(ctx, locker, "k")
		subscribed.Wait(t)
		second := acquireFor(t.Context(), locker, "k")

		taken := p.HoldReply(redistest.Nth(1, script))
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		subscribed.Lift()
		taken.Wait(t)
		cancel()
		if first.end(t); !errors.Is(first.err, lock.ErrHeld) {
			t.Errorf("the one that gave up: %v", first.err)
		}
		taken.Lift()
		if second.end(t); second.err != nil {
			t.Fatal(second.err)
		}
		if err := second.claim.Lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		closeWithin(t, locker)
		if keys := b.Keys(t); len(keys) > 0 {
			t.Errorf("left: %q", keys)
		}
	})
}

// A poll that fails ends an Acquire. A Wait goes on, and returns that error only when its own time is over.
func TestPollFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t)
		acquire(t, b.locker(t), "k").Abandon()
		brief, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		waits, ends := waitFor(t.Context(), locker, "k"), waitFor(brief, locker, "k")
		takes := acquireFor(t.Context(), locker, "k")
		synctest.Wait()
		b.silent.Store(true)
		if <-takes.done; !errors.Is(takes.err, context.DeadlineExceeded) || errors.Is(takes.err, lock.ErrHeld) {
			t.Errorf("Acquire: %v, want that Redis has not answered", takes.err)
		}
		<-ends.done
		var wait *lock.WaitError
		if !errors.Is(ends.err, lock.ErrHeld) || !errors.As(ends.err, &wait) || !errors.Is(wait.Look, context.DeadlineExceeded) ||
			errors.Is(wait.Look, lock.ErrHeld) {
			t.Errorf("a Wait of two seconds: %v, want ErrHeld and that Redis has not answered", ends.err)
		}
		b.silent.Store(false)
		if <-waits.done; waits.err != nil || waits.claim.State != lock.Free {
			t.Errorf("Wait: %v, %v, want free", waits.claim.State, waits.err)
		}
	})
}

// The pub/sub connection is closed a while after the last waiter has gone.
func TestSubscriptionIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t)
		for round := range 3 {
			lease := acquire(t, locker, fmt.Sprint(round))
			waits := waitFor(t.Context(), locker, fmt.Sprint(round))
			synctest.Wait()
			if got := len(b.server.PubSubChannels("*")); got != 1 {
				t.Errorf("%d channels, want 1", got)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-waits.done
			if round == 1 {
				time.Sleep(time.Minute)
			}
		}
		synctest.Wait()
		if got := b.commands("SUBSCRIBE"); got != 3 {
			t.Errorf("%d subscriptions, want 3", got)
		}
		if got := b.subscribers(); got != 2 {
			t.Errorf("%d connections have subscribed, want 2: one for two that followed each other", got)
		}
	})
}

// A waiter waits for the end of a claim also on a server that has begun to refuse writes.
func TestWaitOnAFullServer(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	client := srv.Client(t)
	holder, locker := newLocker(t, client), newLocker(t, srv.Client(t))
	lease := acquire(t, holder, "k")
	fill(t, client)
	waits := waitFor(t.Context(), locker, "k")
	eventually(t, "the first poll", func() bool { return locker.Stats().Subscriptions == 1 }) // Redis 8.6 refuses it
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if waits.end(t); waits.err != nil || waits.claim.State != lock.Free {
		t.Errorf("Wait: %v, %v, want free", waits.claim.State, waits.err)
	}
}

// fill lets the server refuse everything that needs memory.
func fill(t *testing.T, client *redis.Client) {
	t.Helper()
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
}
