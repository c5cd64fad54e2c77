package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

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

func TestToken(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, redistest.Mini(t).Client(t))
	a, b := acquire(t, locker, "a").Token(), acquire(t, locker, "b").Token()
	if a == b {
		t.Error("two leases with one token")
	}
	if id, err := uuid.Parse(a); err != nil || id.Version() != 4 {
		t.Errorf("token %q is no random UUID: %v", a, err)
	}
}

func TestAfterTheEnd(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		ctx := t.Context()
		locker := newLocker(t, b.Client(t))

		released := acquire(t, locker, "released")
		settled := acquire(t, locker, "settled")
		for range 2 {
			if err := released.Release(ctx); err != nil {
				t.Errorf("Release: %v", err)
			}
		}
		if err := settled.Settle(ctx, []byte("v"), time.Hour); err != nil {
			t.Errorf("Settle: %v", err)
		}
		if err := settled.Release(ctx); err != nil {
			t.Errorf("Release after Settle: %v", err)
		}
		for name, lease := range map[string]*lock.Lease{"released": released, "settled": settled} {
			if err := lease.Settle(ctx, []byte("again"), time.Hour); !errors.Is(err, lock.ErrLost) {
				t.Errorf("%s: Settle: %v, want ErrLost", name, err)
			}
			if err := lease.Extend(ctx, time.Minute); !errors.Is(err, lock.ErrLost) {
				t.Errorf("%s: Extend: %v, want ErrLost", name, err)
			}
		}
		if claim, err := locker.Claim(ctx, "settled", nil, 0); err != nil || string(claim.Value) != "v" {
			t.Errorf("the value is %q, %v, want v", claim.Value, err)
		}
		if keys := b.Keys(t); len(keys) != 1 {
			t.Errorf("keys %q, want the settled one alone", keys)
		}
	})
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

// fault: Release racing a renewal, many times
func TestReleaseRacingRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl))
		for range 500 {
			lease := acquire(t, locker, "k")
			time.Sleep(ttl / 3) // the instant at which the renewal starts
			if err := lease.Release(t.Context()); err != nil {
				t.Fatalf("Release: %v", err)
			}
			if keys := b.server.Keys(); len(keys) > 0 {
				t.Fatalf("left: %q", keys)
			}
		}
	})
}

func TestRenewalArrivesAfterRelease(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		p := redistest.NewProxy(t, b.Addr())
		locker := newLocker(t, p.Client(t), lock.WithTTL(3*time.Second))
		load(t, locker)
		lease := acquire(t, locker, "k")
		renewal := p.HoldRequest(redistest.Nth(1, script))
		renewal.Wait(t)
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
		renewal.Lift()
		closeWithin(t, locker)
		if keys := b.Keys(t); len(keys) > 0 {
			t.Errorf("left: %q", keys)
		}
	})
}

// ReleaseInBackground does not wait for the reply; Close does.
func TestReleaseInBackground(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		p := redistest.NewProxy(t, b.Addr())
		locker := newLocker(t, p.Client(t))
		load(t, locker)
		lease := acquire(t, locker, "k")
		release := p.HoldRequest(script)
		lease.ReleaseInBackground(t.Context())
		lease.ReleaseInBackground(t.Context()) // as Release, it may be called again
		release.Wait(t)

		now, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("at once"))
		if err := locker.Close(now); !errors.Is(err, context.Cause(now)) {
			t.Errorf("Close: %v, want that it still waits", err)
		}
		release.Lift()
		closeWithin(t, locker)
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
		if got := context.Cause(lease.Context()); got != context.Canceled {
			t.Errorf("cause %v, want %v", got, context.Canceled)
		}
		if keys := b.Keys(t); len(keys) > 0 {
			t.Errorf("left: %q", keys)
		}
	})
}

// A release in the background is retried like any other.
func TestReleaseInBackgroundIsTriedAgain(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		p := redistest.NewProxy(t, b.Addr())
		locker := newLocker(t, p.Client(t))
		load(t, locker)
		lease := acquire(t, locker, "k")
		cut := p.CutBefore(script)
		lease.ReleaseInBackground(t.Context())
		for range 5 { // more than one operation sends
			cut.Wait(t)
		}
		cut.Lift()
		eventually(t, "the key is free", func() bool { return len(b.Keys(t)) == 0 })
	})
}

// Of two Settles of one lease, through two handles, the second is refused at once, whatever the network does to the
// first.
func TestTwoSettlesOfOneLease(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(*redistest.Proxy, redistest.Match) *redistest.Rule{
		"the request is slow": (*redistest.Proxy).HoldRequest,
		"the reply is slow":   (*redistest.Proxy).HoldReply,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, _ redistest.Backend, p *redistest.Proxy, locker, rival *lock.Locker) {
				outer := acquire(t, locker, "k")
				inner, _, err := locker.TryAcquire(lock.NewContext(t.Context(), outer), "k")
				if err != nil {
					t.Fatal(err)
				}
				held := hold(p, redistest.Nth(1, script))
				first := make(chan error, 1)
				go func() { first <- outer.Settle(t.Context(), []byte("first"), time.Hour) }()
				held.Wait(t)
				for _, value := range []string{"first", "second"} {
					if err := inner.Settle(t.Context(), []byte(value), time.Hour); !errors.Is(err, lock.ErrLost) {
						t.Errorf("Settle again of %q: %v, want ErrLost", value, err)
					}
				}
				held.Lift()
				if err := <-first; err != nil {
					t.Errorf("Settle: %v", err)
				}
				claim, err := rival.Claim(t.Context(), "k", nil, 0)
				if err != nil || string(claim.Value) != "first" {
					t.Errorf("the key holds %q, %v, want first", claim.Value, err)
				}
			})
		})
	}
}

// The same without any fault, many times.
func TestSettlesRace(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locker, rival := newLocker(t, b.Client(t)), newLocker(t, b.Client(t))
		for n := range 50 {
			key := fmt.Sprint(n)
			lease := acquire(t, locker, key)
			errs := make([]error, 4)
			var running sync.WaitGroup
			for i := range errs {
				running.Go(func() { errs[i] = lease.Settle(t.Context(), []byte(fmt.Sprint(i)), time.Hour) })
			}
			running.Wait()
			claim, err := rival.Claim(t.Context(), key, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for i, err := range errs {
				if won := string(claim.Value) == fmt.Sprint(i); won && err != nil || !won && !errors.Is(err, lock.ErrLost) {
					t.Errorf("Settle of %d: %v; the key holds %q", i, err, claim.Value)
				}
			}
		}
	})
}

// A value without the head could not be read by any claim.
func TestSettleAppendHasToAppend(t *testing.T) {
	lease := acquire(t, cannedLocker(t, ""), "k")
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "SettleAppend") {
			t.Errorf("panic %q, want one that names SettleAppend", got)
		}
	}()
	_ = lease.SettleAppend(t.Context(), 0, func([]byte) []byte { return []byte("on its own") }, nil, time.Hour)
}

// The context of a lease is made when Context is called, which may be after the end.
func TestContextIsAskedForLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "value")
		for want, end := range map[error]func(*lock.Lease) error{
			context.Canceled: func(l *lock.Lease) error { return l.Release(ctx) },
			lock.ErrLost:     func(*lock.Lease) error { time.Sleep(time.Minute); return nil },
		} {
			lease, _, err := b.locker(t, lock.WithoutRenewal()).TryAcquire(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.Err(); err != nil {
				t.Errorf("Err: %v before the end", err)
			}
			if err := end(lease); err != nil {
				t.Fatal(err)
			}
			if err := lease.Err(); err != want {
				t.Errorf("Err: %v, want %v", err, want)
			}
			over := lease.Context()
			if over.Err() != context.Canceled || context.Cause(over) != want {
				t.Errorf("the context is done with %v, want %v", context.Cause(over), want)
			}
			if over.Value(key{}) != "value" {
				t.Error("the context has not the caller's values")
			}
			if lease.Context() != over {
				t.Error("the second time it is another context")
			}
			if err := lease.Release(ctx); err != nil {
				t.Errorf("Release: %v", err)
			}
			if err := lease.Err(); err != want {
				t.Errorf("Err: %v when it is released once more, want %v as before", err, want)
			}
		}
	})
}
