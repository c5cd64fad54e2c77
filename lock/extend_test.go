package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// An Extend does not wait for a renewal or another Extend that gets no reply, and ends within the time for one operation.
func TestExtendWaitsForNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 500 * time.Millisecond
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl))
		load(t, locker)
		lease := acquire(t, locker, "k")
		b.silent.Store(true)
		time.Sleep(ttl/3 + time.Millisecond) // a renewal is in flight
		begun, first := time.Now(), make(chan error)
		go func() { first <- lease.Extend(t.Context(), time.Minute) }()
		ctx, cancel := context.WithTimeout(t.Context(), limit/5)
		defer cancel()
		if err := lease.Extend(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != limit/5 {
			t.Errorf("Extend of a caller in a hurry: %v after %v", err, time.Since(begun))
		}
		b.silent.Store(false)
		if err := lease.Extend(t.Context(), time.Hour); err != nil || time.Since(begun) > limit/2 {
			t.Errorf("Extend: %v after %v", err, time.Since(begun))
		}
		if err := <-first; !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != limit {
			t.Errorf("the first Extend: %v after %v, want DeadlineExceeded after %v", err, time.Since(begun), limit)
		}
		if left := time.Until(lease.Until()); left < 59*time.Minute {
			t.Errorf("the lease is valid for %v, want that of the longest Extend", left)
		}
		closeWithin(t, locker)
	})
}

// Another Settle of the lease is refused at once, and the first one goes on in the background.
func TestSettleAgain(t *testing.T) {
	for name, test := range map[string]struct {
		silence time.Duration // from the first Settle on
		again   time.Duration // when it is called again
		value   string
	}{
		"after it has succeeded in the background": {time.Second, ttl, "v"},
		"with another value":                       {time.Second, ttl, "w"},
		"while it is tried in the background":      {ttl, 2 * time.Second, "v"},
		"with another value meanwhile":             {ttl, 2 * time.Second, "w"},
		"when a lease has passed":                  {2*ttl + time.Second, 2 * ttl, "v"},
		"when that has, and the server is there":   {2 * ttl, 2*ttl + time.Second, "w"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				locker := b.locker(t, lock.WithTTL(ttl))
				load(t, locker)
				lease, begun := acquire(t, locker, "k"), time.Now()
				b.full.Store(true)
				time.AfterFunc(test.silence, func() { b.full.Store(false) })
				if err := lease.Settle(t.Context(), []byte("v"), time.Hour); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Settle: %v, want DeadlineExceeded", err)
				}
				time.Sleep(test.again - time.Since(begun))
				before := time.Now()
				err := lease.Settle(t.Context(), []byte(test.value), time.Hour)
				if !errors.Is(err, lock.ErrLost) || time.Since(before) != 0 {
					t.Errorf("again: %v after %v, want ErrLost at once", err, time.Since(before))
				}
				time.Sleep(6 * ttl)
				synctest.Wait()
				if claim := wantState(t, locker, "at the end", lock.Settled); string(claim.Value) != "v" {
					t.Errorf("the key holds %q, want v", claim.Value)
				}
				closeWithin(t, locker)
			})
		})
	}
}

// An abandoned claim is kept alive again for a pending Settle.
func TestSettleOfAnAbandonedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl))
		load(t, locker)
		lease := acquire(t, locker, "k")
		lease.Abandon()
		time.Sleep(ttl / 4)
		b.full.Store(true)
		time.AfterFunc(ttl-time.Second, func() { b.full.Store(false) })
		settleInVain(t, lease, []byte("v"), time.Hour)
		until := lease.Until()
		time.Sleep(ttl / 2)
		if !lease.Until().After(until) {
			t.Error("the lease is not renewed")
		}
		<-lease.Context().Done()
		if got := context.Cause(lease.Context()); got != context.Canceled {
			t.Errorf("the lease has ended with %v, want that it is settled", got)
		}
		closeWithin(t, locker)
	})
}
