package lock_test

import (
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// wantState claims the key and checks the State.
func wantState(t *testing.T, locker *lock.Locker, when string, want lock.State) lock.Claim {
	t.Helper()
	claim, err := locker.Claim(t.Context(), "k", []byte("rival"), 0)
	if err != nil || claim.State != want {
		t.Errorf("%s: %v, %v, want %v", when, claim.State, err, want)
	}
	return claim
}

func TestHeldClaimIsAbandonedWhenItsHolderDied(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		dead := lock.New(b.Client(t), "test", lock.WithOpTimeout(20*time.Second), lock.WithoutRenewal())
		other := newLocker(t, b.Client(t), lock.WithTTL(time.Minute)) // a Locker's own length is of no meaning here
		if _, err := dead.Claim(t.Context(), "k", []byte("holder"), time.Hour); err != nil {
			t.Fatal(err)
		}
		if claim := wantState(t, other, "while it is renewed", lock.Held); string(claim.Note) != "holder" {
			t.Errorf("note %q, want the holder's", claim.Note)
		}
		b.Elapse(t, 10*time.Second)
		if claim := wantState(t, other, "when the lease has run out", lock.Abandoned); string(claim.Note) != "holder" {
			t.Errorf("note %q, want the holder's", claim.Note)
		}
		if _, ok, err := other.TryAcquire(t.Context(), "k"); ok || err != nil {
			t.Errorf("TryAcquire: %v, %v, want false, nil", ok, err)
		}
		b.Elapse(t, 59*time.Minute)
		wantState(t, other, "an hour later", lock.Abandoned)
		b.Elapse(t, time.Minute)
		wantState(t, other, "when the hold is over", lock.Granted)
	})
}

// fault: TTL of 0, below 1 ms, negative
func TestHoldIsRefused(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locker := newLocker(t, b.Client(t))
		for _, hold := range []time.Duration{-time.Second, -1, 1, 999 * time.Microsecond, lock.MaxHold + 1, 1 << 62} {
			if claim, err := locker.Claim(t.Context(), "k", nil, hold); err == nil || claim.Lease != nil {
				t.Errorf("a hold of %v: %v, %v, want it refused", hold, claim.State, err)
			}
		}
		if keys := b.Keys(t); len(keys) > 0 {
			t.Errorf("left: %q", keys)
		}
		for key, hold := range map[string]time.Duration{"least": time.Millisecond, "most": lock.MaxHold} {
			claimUnder(t, locker, key, hold)
		}
	})
}
