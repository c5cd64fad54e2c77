package lock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// Look returns the state with its note or value. It changes neither a byte nor the expiry, and never takes a key.
func TestLook(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		ctx, client := t.Context(), b.Client(t)
		locker := newLocker(t, client, lock.WithTTL(time.Hour), lock.WithoutRenewal())
		for key, hold := range map[string]time.Duration{"held": 0, "abandoned": 2 * time.Hour, "settled": 0} {
			claim, err := locker.Claim(ctx, key, []byte("note of "+key), hold)
			if err != nil || claim.State != lock.Granted {
				t.Fatalf("%s: %v, %v, want granted", key, claim.State, err)
			}
			if key == "settled" {
				if err := claim.Lease.Settle(ctx, []byte("value"), 2*time.Hour); err != nil {
					t.Fatal(err)
				}
			}
		}
		look := func(key string, want lock.State, note, value string) {
			t.Helper()
			storageKey := locker.StorageKey(key)
			before, _ := b.Raw(t, storageKey)
			claim, err := locker.Look(ctx, key)
			if err != nil || claim.State != want || string(claim.Note) != note || string(claim.Value) != value {
				t.Errorf("%s: %v %q %q, %v, want %v %q %q", key, claim.State, claim.Note, claim.Value, err, want, note, value)
			}
			if claim.Key != storageKey || claim.Lease != nil {
				t.Errorf("%s: key %q, lease %v", key, claim.Key, claim.Lease)
			}
			if after, _ := b.Raw(t, storageKey); after != before {
				t.Errorf("%s: it is now %q, was %q", key, after, before)
			}
		}
		look("free", lock.Free, "", "")
		look("held", lock.Held, "note of held", "")
		look("abandoned", lock.Held, "note of abandoned", "") // still
		look("settled", lock.Settled, "", "value")
		b.Elapse(t, time.Hour)
		look("held", lock.Free, "", "")
		look("abandoned", lock.Abandoned, "note of abandoned", "")
		look("settled", lock.Settled, "", "value")
		b.Elapse(t, 2*time.Hour)
		look("abandoned", lock.Free, "", "")
		look("settled", lock.Free, "", "")
		if keys := b.Keys(t); len(keys) != 0 {
			t.Errorf("keys %q: Look must take none", keys)
		}
	})
}

func TestLookFails(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	client := b.Client(t)
	locker := newLocker(t, client)
	if err := client.Set(t.Context(), locker.StorageKey("foreign"), "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if claim, err := locker.Look(t.Context(), "foreign"); !errors.Is(err, lock.ErrForeign) || claim.State != 0 {
		t.Errorf("foreign: %v, %v, want ErrForeign", claim.State, err)
	}
	closeWithin(t, locker)
	if _, err := locker.Look(t.Context(), "k"); !errors.Is(err, lock.ErrClosed) {
		t.Errorf("closed: %v, want ErrClosed", err)
	}
}
