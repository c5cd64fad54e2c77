package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// unsettled returns a lease whose Settle for an hour has had no answer, and is about to be tried again in the
// background. Redis answers again.
func unsettled(t *testing.T, b *bubble, locker *lock.Locker) *lock.Lease {
	t.Helper()
	lease := acquire(t, locker, "k")
	b.full.Store(true)
	if err := lease.Settle(t.Context(), []byte("v"), time.Hour); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Settle: %v, want DeadlineExceeded", err)
	}
	b.full.Store(false)
	return lease
}

// Once the lease is released, a Settle is not retried. The key is free, and a value that arrived later would be the
// result of an operation that its caller has taken back.
func TestNothingIsSettledAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl))
		load(t, locker)
		lease := unsettled(t, b, locker)
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := b.total()
		time.Sleep(2 * time.Hour) // longer than a Settle is tried again
		synctest.Wait()
		if sent := b.total() - before; sent != 0 {
			t.Errorf("%d commands were sent behind the end of the lease", sent)
		}
		wantState(t, locker, "later", lock.Granted)
	})
}

// The claim is kept alive for as long as its Settle is retried, and no longer.
func TestClaimRunsOutAfterItsLastSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl))
		load(t, locker)
		lease, begun := acquire(t, locker, "k"), time.Now()
		b.full.Store(true)
		if err := lease.Settle(t.Context(), []byte("v"), 2*ttl); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Settle: %v, want DeadlineExceeded", err)
		}
		time.Sleep(ttl)
		wantState(t, b.locker(t), "while it is tried again", lock.Held)
		select {
		case <-lease.Context().Done():
		case <-time.After(time.Hour):
			t.Fatal("the lease is still renewed an hour later")
		}
		if got := context.Cause(lease.Context()); got != lock.ErrLost {
			t.Errorf("it has ended with %v, want ErrLost", got)
		}
		// The value's time, the last try and the pause before it, and one more lease.
		if took, limit := time.Since(begun), 2*ttl+2*time.Second+ttl; took > limit {
			t.Errorf("it has ended after %v, want less than %v", took, limit)
		}
		time.Sleep(time.Second) // for what valid takes off, and for a renewal that had to wait behind the Settles
		wantState(t, locker, "at the end", lock.Granted)
	})
}
