package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// wantState claims the key and checks the State.
func wantState(t *testing.T, locker *lock.Locker, when string, want lock.State) lock.Claim {
	t.Helper()
	claim, err := locker.Claim(t.Context(), "k", []byte("rival"))
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
		claim, err := dead.Claim(t.Context(), "k", []byte("holder"))
		if err != nil {
			t.Fatal(err)
		}
		if err := claim.Lease.Hold(t.Context(), time.Hour); err != nil {
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

func TestLateOwnerSettlesAnAbandonedClaim(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for name, end := range map[string]func(*lock.Lease) error{
			"settle":  func(l *lock.Lease) error { return l.Settle(t.Context(), []byte("v"), time.Hour) },
			"release": func(l *lock.Lease) error { return l.Release(t.Context()) },
		} {
			b.FlushAll(t)
			locker := newLocker(t, b.Client(t), lock.WithoutRenewal())
			lease := acquire(t, locker, "k")
			if err := lease.Hold(t.Context(), time.Hour); err != nil {
				t.Fatal(err)
			}
			b.Elapse(t, 20*time.Second)
			wantState(t, locker, "abandoned", lock.Abandoned)
			if err := end(lease); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			wantState(t, locker, name, map[string]lock.State{"settle": lock.Settled, "release": lock.Granted}[name])
		}
	})
}

func TestRenewalRestoresTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl))
		lease := acquire(t, locker, "k")
		if err := lease.Hold(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		key := locker.StorageKey("k")
		for range 10 {
			time.Sleep(ttl)
			synctest.Wait()
			wantState(t, locker, "renewed", lock.Held)
			if got, want := b.server.TTL(key), time.Hour+ttl; got != want {
				t.Errorf("right after a renewal %v are left, want %v", got, want)
			}
		}
		if got, want := time.Until(lease.Until()), valid; got != want {
			t.Errorf("valid for %v, want %v: the hold is no lease", got, want)
		}
		lease.Abandon()
		<-lease.Context().Done()
		if got := context.Cause(lease.Context()); !errors.Is(got, lock.ErrLost) {
			t.Errorf("cause %v, want ErrLost", got)
		}
		wantState(t, locker, "at the end of our time", lock.Held)
		time.Sleep(ttl - valid + time.Millisecond)
		wantState(t, locker, "at the end of the server's", lock.Abandoned)
	})
}

// fault: TTL of 0, below 1 ms, negative
func TestHoldIsRefused(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		ctx := t.Context()
		locker, rival := newLocker(t, b.Client(t)), newLocker(t, b.Client(t))
		lease := acquire(t, locker, "k")
		for _, d := range []time.Duration{-time.Second, 0, time.Microsecond, 1 << 62} {
			if err := lease.Hold(ctx, d); err == nil || errors.Is(err, lock.ErrLost) {
				t.Errorf("Hold for %v: %v, want it refused", d, err)
			}
		}
		if err := lease.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if err := lease.Hold(ctx, time.Hour); !errors.Is(err, lock.ErrLost) {
			t.Errorf("after Release: %v, want ErrLost", err)
		}
		lease = acquire(t, locker, "k")
		b.FlushAll(t)
		acquire(t, rival, "k")
		if err := lease.Hold(ctx, time.Hour); !errors.Is(err, lock.ErrLost) {
			t.Errorf("over another's claim: %v, want ErrLost", err)
		}
		b.Elapse(t, 10*time.Second)
		if keys := b.Keys(t); len(keys) > 0 {
			t.Errorf("another's claim was held: %q", keys)
		}
	})
}

func TestReplyToHoldIsLost(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, locker, rival *lock.Locker) {
		lease := acquire(t, locker, "k")
		lost := p.DropReply(redistest.Nth(1, redistest.Named("EVAL", "EVALSHA")))
		if err := lease.Hold(t.Context(), time.Hour); err != nil {
			t.Errorf("Hold: %v", err)
		}
		lost.Wait(t)
		lease.Abandon()
		b.Elapse(t, 10*time.Second)
		wantState(t, rival, "abandoned", lock.Abandoned)
	})
}

// A Hold whose caller has timed out must not keep the key, because nothing runs under it.
func TestHoldArrivesAfterTheCallerGaveUp(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, _, rival *lock.Locker) {
		locker := newLocker(t, p.Client(t), lock.WithOpTimeout(2*time.Second), lock.WithoutRenewal())
		lease := acquire(t, locker, "k")
		held, arrived := p.HoldRequest(redistest.Named("EVAL", "EVALSHA")), p.HoldReply(redistest.Named("EVAL", "EVALSHA"))
		if err := lease.Hold(t.Context(), time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Hold: %v, want DeadlineExceeded", err)
		}
		held.Wait(t)
		b.Elapse(t, 5*time.Second) // no release gets through for so long
		held.Lift()
		arrived.Wait(t)
		b.Elapse(t, 5*time.Second)
		wantState(t, rival, "one lease later", lock.Granted)
		arrived.Lift()
	})
}

// A claim under a hold is gone, or is another one, when the second command of Claim arrives.
func TestHeldClaimChangesUnderTheLook(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, locker, rival *lock.Locker) {
		for name, end := range map[string]func(*lock.Lease) error{
			"settled":  func(l *lock.Lease) error { return l.Settle(t.Context(), []byte("v"), time.Minute) },
			"released": func(l *lock.Lease) error { return l.Release(t.Context()) },
		} {
			b.FlushAll(t)
			lease := acquire(t, rival, "k")
			if err := lease.Hold(t.Context(), time.Hour); err != nil {
				t.Fatal(err)
			}
			look := p.HoldRequest(redistest.Named("EVAL", "EVALSHA"))
			claims := make(chan lock.Claim, 1)
			go func() {
				claim, err := locker.Claim(t.Context(), "k", nil)
				if err != nil {
					t.Error(err)
				}
				claims <- claim
			}()
			look.Wait(t)
			if err := end(lease); err != nil {
				t.Error(err)
			}
			look.Lift()
			want := map[string]lock.State{"settled": lock.Settled, "released": lock.Granted}[name]
			if claim := <-claims; claim.State != want {
				t.Errorf("%s: %v, want %v", name, claim.State, want)
			}
		}
	})
}

func TestHoldRoundTrips(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	onBoth(t, func(t *testing.T, _ redistest.Backend, p *redistest.Proxy, locker, rival *lock.Locker) {
		for range 2 { // the first time the server learns the scripts
			p.Reset()
			lease := acquire(t, locker, "k")
			if err := lease.Hold(t.Context(), time.Hour); err != nil {
				t.Fatal(err)
			}
			wantState(t, locker, "held", lock.Held)
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := p.RoundTrips(); got != 5 {
			t.Errorf("%d round trips (%q), want 5: claim, hold, claim and look, release", got, p.Commands())
		}
	})
}

func TestHoldNeverShortensALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl), lock.WithoutRenewal())
		lease := acquire(t, locker, "k")
		if err := lease.Extend(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		until := lease.Until()
		if err := lease.Hold(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		if lease.Until().Before(until) {
			t.Error("Until has moved back")
		}
		time.Sleep(time.Until(until))
		wantState(t, locker, "as long as it is valid", lock.Held)
		time.Sleep(2 * time.Minute)
		wantState(t, locker, "when lease and hold are over", lock.Granted)
	})
}

// After a Hold or an Extend, even one without a reply, the key may stay taken for long after the lease: so the retries
// of an unconfirmed Release go on for as long.
func TestUnconfirmedReleaseOfALongClaim(t *testing.T) {
	for name, ask := range map[string]func(*lock.Lease, context.Context, time.Duration) error{
		"hold": (*lock.Lease).Hold, "extend": (*lock.Lease).Extend,
	} {
		for _, answered := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", answered: ", answered), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBubble(t)
					locker := b.locker(t, lock.WithTTL(ttl))
					load(t, locker)
					lease := acquire(t, locker, "k")
					b.deaf.Store(!answered) // it is carried out all the same
					if err := ask(lease, t.Context(), 24*time.Hour); (err == nil) != answered {
						t.Fatalf("%s: %v", name, err)
					}
					b.deaf.Store(false)
					b.silent.Store(true)
					if err := lease.Release(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("Release: %v, want DeadlineExceeded", err)
					}
					time.Sleep(10 * ttl)
					b.silent.Store(false)
					time.Sleep(2 * time.Second)
					synctest.Wait()
					wantState(t, locker, "when Redis is there again", lock.Granted)
					closeWithin(t, locker)
				})
			})
		}
	}
}

// A renewal between a claim and its hold must not make a late hold look early.
func TestNoRenewalWhileAHoldIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl), lock.WithOpTimeout(ttl/2))
		lease := acquire(t, locker, "k")
		b.silent.Store(true)
		start := time.Now()
		if err := lease.Hold(t.Context(), time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Hold: %v, want DeadlineExceeded", err)
		}
		b.silent.Store(false)
		<-lease.Context().Done()
		if got := time.Since(start); got != valid {
			t.Errorf("the lease ended after %v, want %v", got, valid)
		}
	})
}

// Hold keeps the claim of an abandoned lease, and does not resume the renewals, also if Abandon was called during Hold.
func TestHoldOfAnAbandonedLease(t *testing.T) {
	t.Parallel()
	for name, abandon := range map[string]func(*bubble, *lock.Lease) error{
		"before": func(_ *bubble, l *lock.Lease) error {
			l.Abandon()
			return l.Hold(context.Background(), time.Hour)
		},
		"meanwhile": func(b *bubble, l *lock.Lease) error {
			b.lag.Store(int64(10 * time.Millisecond))
			defer b.lag.Store(0)
			held := make(chan error, 1)
			go func() { held <- l.Hold(context.Background(), time.Hour) }()
			time.Sleep(time.Millisecond)
			l.Abandon()
			return <-held
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				locker := b.locker(t)
				lease := acquire(t, locker, "k")
				if err := abandon(b, lease); err != nil {
					t.Fatal(err)
				}
				time.Sleep(11 * time.Second)
				if claim, err := locker.Claim(t.Context(), "k", nil); err != nil || claim.State != lock.Abandoned {
					t.Errorf("%v, %v, want abandoned", claim.State, err)
				}
			})
		})
	}
}

// A second Hold that arrives late does not revive a claim that is already abandoned.
func TestSecondHoldComesLate(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locker := newLocker(t, b.Client(t), lock.WithOpTimeout(3*time.Second), lock.WithoutRenewal())
		lease := acquire(t, locker, "k")
		if err := lease.Hold(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		b.Elapse(t, 15*time.Second)
		if err := lease.Hold(t.Context(), 2*time.Hour); err == nil {
			t.Error("Hold: nil, want an error")
		}
		if claim, err := locker.Claim(t.Context(), "k", nil); err != nil || claim.State != lock.Abandoned {
			t.Errorf("%v, %v, want abandoned", claim.State, err)
		}
	})
}

// The same for a caller whose context ends before the time for one operation.
func TestHoldArrivesAfterItsContextEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl), lock.WithoutRenewal())
		load(t, locker)
		lease := acquire(t, locker, "k")
		b.lag.Store(int64(120 * time.Millisecond)) // of the script, and of each command in it
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		begun := time.Now()
		err := lease.Hold(ctx, time.Hour)
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took != 200*time.Millisecond {
			t.Errorf("Hold: %v after %v, want DeadlineExceeded after 200 ms", err, took)
		}
		time.Sleep(ttl)
		b.lag.Store(0)
		if claim, err := locker.Claim(t.Context(), "k", nil); err != nil || claim.State != lock.Granted {
			t.Errorf("Claim: %v, %v, want granted", claim.State, err)
		}
	})
}
