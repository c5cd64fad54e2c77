package lock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// leaveAll leaves a lease of every kind in Redis. It returns those that Close releases, and the keys of those that it
// must not release.
func leaveAll(t *testing.T, b redistest.Backend, locker *lock.Locker) (held []*lock.Lease, kept []string) {
	t.Helper()
	ctx := t.Context()
	join := func(lease *lock.Lease, key string) *lock.Lease {
		joined, err := locker.Acquire(lock.NewContext(ctx, lease), key)
		return errorless(t, joined, err)
	}
	acquired, err := locker.Acquire(ctx, "acquired")
	first, left := acquire(t, locker, "joined"), acquire(t, locker, "left by the first")
	held = []*lock.Lease{
		acquire(t, locker, "tried"), errorless(t, acquired, err), first, join(first, "joined"), join(left, "left by the first"),
		resume(t, locker, "resumed", acquire(t, newLocker(t, b.Client(t)), "resumed").Token()),
	}
	release(t, left)

	claim, last := claimUnder(t, locker, "a claim", 0), claimUnder(t, locker, "a claim's last handle", 0)
	join(claim, "a claim")
	join(last, "a claim's last handle")
	release(t, last)
	claimUnder(t, locker, "a hold", time.Hour)
	acquire(t, locker, "abandoned").Abandon()
	acquire(t, locker, "abandoned at").AbandonAt(time.Now())
	settled := acquire(t, locker, "settled")
	errorless(t, settled, settled.Settle(ctx, nil, time.Hour))
	handedOver := resume(t, newLocker(t, b.Client(t)), "handed over", acquire(t, locker, "handed over").Token())
	t.Cleanup(func() { _ = handedOver.Release(context.Background()) })
	return held, []string{"a claim", "a claim's last handle", "a hold", "abandoned", "abandoned at", "settled", "handed over"}
}

func TestReleaseOnClose(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]lock.Option{"with": {lock.WithReleaseOnClose()}, "without": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				locker, rival := newLocker(t, b.Client(t), append(opts, lock.WithTTL(time.Hour))...), newLocker(t, b.Client(t))
				held, kept := leaveAll(t, b, locker)
				// A lost lease is nobody's to release: the key is another's.
				if acquire(t, locker, "lost"); forget(t.Context(), locker, "lost") != nil {
					t.Fatal("the lease is not lost")
				}
				acquire(t, rival, "lost")
				closeWithin(t, locker)
				for _, lease := range held {
					if got := context.Cause(lease.Context()); (opts == nil) != (got == nil) || got != nil && got != context.Canceled {
						t.Errorf("a lease that was held: %v", got)
					}
				}
				for _, key := range append(kept, "lost") {
					if info, err := rival.Inspect(t.Context(), rival.StorageKey(key)); err != nil || info.State == lock.Free {
						t.Errorf("%s: %v, %v", key, info.State, err)
					}
				}
				for _, key := range []string{"acquired", "joined", "left by the first", "resumed", "tried"} {
					info, err := rival.Inspect(t.Context(), rival.StorageKey(key))
					if err != nil || (info.State == lock.Free) != (opts != nil) {
						t.Errorf("%s: %v, %v", key, info.State, err)
					}
				}
				for _, lease := range held { // as a deferred Release does
					release(t, lease)
				}
			})
		})
	}
}

// The holder is told before the key is free.
func TestContextEndsBeforeCloseReleases(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		locker := b.locker(t, lock.WithReleaseOnClose(), lock.WithTTL(time.Hour))
		load(t, locker)
		lease := acquire(t, locker, "k")
		b.stopped.close()
		closed := make(chan error, 1)
		go func() { closed <- locker.Close(context.Background()) }()
		synctest.Wait()
		if got := context.Cause(lease.Context()); got != context.Canceled || !b.server.Exists(locker.StorageKey("k")) {
			t.Errorf("the release is sent, and the lease's context: %v; keys %q", got, b.server.Keys())
		}
		if b.stopped.open(); <-closed != nil || b.server.Exists(locker.StorageKey("k")) {
			t.Errorf("Close has released nothing: %q", b.server.Keys())
		}
	})
}

// A key that is granted while Close runs is freed.
//
// fault: the reply to a claim comes during Close
func TestGrantedDuringClose(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		locker := b.locker(t, lock.WithReleaseOnClose(), lock.WithTTL(time.Hour))
		b.slow.close()
		tried, closed := tryInBackground(t.Context(), locker), make(chan error, 1)
		synctest.Wait()
		go func() { closed <- locker.Close(context.Background()) }()
		synctest.Wait()
		b.slow.open()
		wantErr(t, "TryAcquire", <-tried, lock.ErrClosed)
		err := <-closed
		time.Sleep(time.Second) // for the release
		if err != nil || len(b.server.Keys()) > 0 {
			t.Errorf("Close: %v; left: %q", err, b.server.Keys())
		}
	})
}

// Redis answers nothing: the holders are told all the same, and Close says what it could not release.
//
// fault: redis-server SIGSTOP, longer
func TestCloseCannotRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, honorsDeadlines)
		locker := lock.New(b.client, "test", lock.WithReleaseOnClose(), lock.WithOpTimeout(time.Second), lock.WithTTL(time.Minute))
		var leases []*lock.Lease
		for i := range 3 {
			leases = append(leases, acquire(t, locker, fmt.Sprint(i)))
		}
		b.silent.Store(true)
		start := time.Now()
		err := locker.Close(t.Context())
		const each = time.Second + time.Second/10 // of two tries: Close also waits for the worker, see pipeline's contexts
		if !errors.Is(err, lock.ErrUnreleased) || !strings.Contains(err.Error(), ": 3: ") || time.Since(start) > 2*each {
			t.Errorf("%v after %v, want three keys", err, time.Since(start))
		}
		for _, lease := range leases {
			if lease.Err() != context.Canceled {
				t.Errorf("%v", lease.Err())
			}
		}
		b.silent.Store(false)
		time.Sleep(time.Minute)
		if keys := b.server.Keys(); len(keys) > 0 {
			t.Errorf("left: %q", keys)
		}
	})
}

// What is over is not kept in memory.
func TestLeasesAreNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := newLocker(t, newBubble(t).client, lock.WithReleaseOnClose(), lock.WithoutRenewal())
		for what, end := range map[string]func(*lock.Lease){
			"released": func(lease *lock.Lease) { _ = lease.Release(t.Context()) },
			"settled":  func(lease *lock.Lease) { _ = lease.Settle(t.Context(), nil, time.Hour) },
			"run out":  func(*lock.Lease) {},
		} {
			var ended weak.Pointer[lock.Lease]
			func() {
				lease := acquire(t, locker, what)
				ended = weak.Make(lease)
				end(lease)
			}()
			time.Sleep(locker.TTL())
			for n := 0; ; n++ {
				if runtime.GC(); ended.Value() == nil {
					break
				}
				if n == 100 {
					t.Fatalf("a lease that was %s is kept", what)
				}
				time.Sleep(time.Second)
			}
		}
	})
}
