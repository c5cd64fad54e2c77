package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

type valueKey struct{}

// fault: the caller's ctx cancelled before, during, after
func TestLeaseContext(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, redistest.Mini(t).Client(t))
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "v"))
	lease, _, err := locker.TryAcquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if got := lease.Context().Value(valueKey{}); got != "v" {
		t.Errorf("value %v, want that of the context given", got)
	}
	if err := lease.Context().Err(); err != nil {
		t.Errorf("a limit on waiting ended the lease: %v", err)
	}
	if err := lease.Release(ctx); err != nil {
		t.Errorf("Release on a cancelled context: %v", err)
	}
	if got := context.Cause(lease.Context()); got != context.Canceled {
		t.Errorf("cause after Release: %v, want %v", got, context.Canceled)
	}

	lease = acquire(t, locker, "k")
	if err := lease.Settle(ctx, nil, time.Hour); err != nil {
		t.Errorf("Settle on a cancelled context: %v", err)
	}
	if got := context.Cause(lease.Context()); got != context.Canceled {
		t.Errorf("cause after Settle: %v, want %v", got, context.Canceled)
	}
}

func TestSettleAndRelease(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		meanwhile func(t *testing.T, b redistest.Backend, rival *lock.Locker)
		settle    error
		release   error
		value     string // what the key holds after Settle, if that is a value
	}{
		"our claim": {
			meanwhile: func(*testing.T, redistest.Backend, *lock.Locker) {},
			value:     "ours",
		},
		"gone": {
			meanwhile: func(t *testing.T, b redistest.Backend, _ *lock.Locker) { b.FlushAll(t) },
			value:     "ours",
		},
		"another's claim": {
			meanwhile: func(t *testing.T, b redistest.Backend, rival *lock.Locker) {
				b.FlushAll(t)
				acquire(t, rival, "k")
			},
			settle: lock.ErrLost, release: lock.ErrLost,
		},
		"another's value": {
			meanwhile: func(t *testing.T, b redistest.Backend, rival *lock.Locker) {
				b.FlushAll(t)
				if err := acquire(t, rival, "k").Settle(t.Context(), []byte("theirs"), time.Hour); err != nil {
					t.Fatal(err)
				}
			},
			settle: lock.ErrLost, release: lock.ErrLost, value: "theirs",
		},
	}
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				ctx := t.Context()
				locker, rival := newLocker(t, b.Client(t)), newLocker(t, b.Client(t))

				b.FlushAll(t)
				lease := acquire(t, locker, "k")
				test.meanwhile(t, b, rival)
				if err := lease.Settle(ctx, []byte("ours"), time.Hour); !errors.Is(err, test.settle) {
					t.Errorf("Settle: %v, want %v", err, test.settle)
				}
				claim, err := rival.Claim(ctx, "k", nil, 0)
				if err != nil || string(claim.Value) != test.value {
					t.Errorf("the key holds %q, %v, want %q", claim.Value, err, test.value)
				}

				b.FlushAll(t)
				lease = acquire(t, locker, "k")
				test.meanwhile(t, b, rival)
				for range 2 {
					if err := lease.Release(ctx); !errors.Is(err, test.release) {
						t.Errorf("Release: %v, want %v", err, test.release)
					}
				}
				if got, want := len(b.Keys(t)) == 0, test.release == nil; got != want {
					t.Errorf("after Release the key is gone: %v, want %v", got, want)
				}
			})
		}
	})
}

// fault: TTL of 0, below 1 ms, negative
func TestExtendRefusesWhatIsTooShort(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, redistest.Mini(t).Client(t))
	lease := acquire(t, locker, "k")
	for _, d := range []time.Duration{-time.Second, 0, time.Microsecond} {
		if err := lease.Extend(t.Context(), d); err == nil {
			t.Errorf("Extend(%v) is accepted", d)
		}
		if err := lease.Settle(t.Context(), nil, d); err == nil {
			t.Errorf("Settle for %v is accepted", d)
		}
	}
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the lease has ended: %v", err)
	}
}
