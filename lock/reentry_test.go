package lock_test

import (
	"context"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

func TestReentry(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p := redistest.NewProxy(t, b.Addr())
		locker := newLocker(t, p.Client(t))
		outer := acquire(t, locker, "k")
		ctx := lock.NewContext(t.Context(), outer)

		p.Reset()
		inner, ok, err := locker.TryAcquire(ctx, "k")
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		third, err := locker.Acquire(lock.NewContext(ctx, inner), "k")
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Commands(); len(got) > 0 {
			t.Errorf("to join has sent %q", got)
		}
		if inner.Token() != outer.Token() || inner.Fence() != outer.Fence() || !inner.Until().Equal(outer.Until()) {
			t.Error("it is another lease")
		}

		// In any order: the last one frees the key.
		for i, lease := range []*lock.Lease{outer, third, inner} {
			for range 2 {
				if err := lease.Release(t.Context()); err != nil {
					t.Errorf("Release %d: %v", i, err)
				}
			}
			if got := context.Cause(lease.Context()); got != context.Canceled {
				t.Errorf("after Release %d the cause is %v", i, got)
			}
			if free := len(b.Keys(t)) == 0; free != (i == 2) {
				t.Errorf("after Release %d the key is free: %v", i, free)
			}
		}
		if _, ok, err := locker.TryAcquire(ctx, "k"); !ok || err != nil { // the old lease is no longer there to join
			t.Errorf("afterwards: %v, %v", ok, err)
		}
		if keys := b.Keys(t); len(keys) != 1 {
			t.Errorf("keys %q: it was not taken anew", keys)
		}
	})
}

// Without NewContext for this key and Locker nothing is joined.
func TestNoReentry(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locker, other := newLocker(t, b.Client(t)), newLocker(t, b.Client(t))
		lease := acquire(t, locker, "k")
		ctx := lock.NewContext(t.Context(), lease)

		if _, ok, err := locker.TryAcquire(t.Context(), "k"); ok || err != nil {
			t.Errorf("without the context: %v, %v", ok, err)
		}
		if _, ok, err := other.TryAcquire(ctx, "k"); ok || err != nil {
			t.Errorf("another Locker: %v, %v", ok, err)
		}
		if claim, err := locker.Claim(ctx, "k", nil, 0); err != nil || claim.State != lock.Held {
			t.Errorf("Claim: %v, %v", claim.State, err)
		}
		another, ok, err := locker.TryAcquire(ctx, "another")
		if !ok || err != nil || another.Token() == lease.Token() {
			t.Errorf("another key: %v, %v", ok, err)
		}
		// Two leases in one context are both found.
		if again, ok, err := locker.TryAcquire(lock.NewContext(ctx, another), "k"); !ok || err != nil || again.Token() != lease.Token() {
			t.Errorf("behind another lease: %v, %v", ok, err)
		}
	})
}
