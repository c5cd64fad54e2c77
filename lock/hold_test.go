package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
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

func TestLateOwnerSettlesAnAbandonedClaim(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for name, end := range map[string]func(*lock.Lease) error{
			"settle":  func(l *lock.Lease) error { return l.Settle(t.Context(), []byte("v"), time.Hour) },
			"release": func(l *lock.Lease) error { return l.Release(t.Context()) },
		} {
			b.FlushAll(t)
			locker := newLocker(t, b.Client(t), lock.WithoutRenewal())
			lease := claimUnder(t, locker, "k", time.Hour)
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
		lease := claimUnder(t, locker, "k", time.Hour)
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

// A claim under a hold is gone, or is another one, when the second command of Claim arrives.
func TestHeldClaimChangesUnderTheLook(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, locker, rival *lock.Locker) {
		for name, end := range map[string]func(*lock.Lease) error{
			"settled":  func(l *lock.Lease) error { return l.Settle(t.Context(), []byte("v"), time.Minute) },
			"released": func(l *lock.Lease) error { return l.Release(t.Context()) },
		} {
			b.FlushAll(t)
			lease := claimUnder(t, rival, "k", time.Hour)
			look := p.HoldRequest(redistest.Named("EVAL", "EVALSHA"))
			claims := make(chan lock.Claim, 1)
			go func() {
				claim, err := locker.Claim(t.Context(), "k", nil, 0)
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

// A claim with the longest hold is a claim to others.
func TestLongestHold(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		locker := newLocker(t, b.Client(t))
		lease := claimUnder(t, locker, "k", lock.MaxHold)
		wantState(t, newLocker(t, b.Client(t)), "while it is renewed", lock.Held)
		release(t, lease)
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

// fault: reply to the claim dropped (proxy closes)
func TestReplyToAClaimUnderAHoldIsLost(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, locker, rival *lock.Locker) {
		lost := p.DropReply(redistest.Nth(1, redistest.Named("SET")))
		lease := claimUnder(t, locker, "k", time.Hour)
		lost.Wait(t)
		lease.Abandon()
		b.Elapse(t, 10*time.Second)
		wantState(t, rival, "abandoned", lock.Abandoned)
	})
}

func TestHoldRoundTrips(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	onBoth(t, func(t *testing.T, _ redistest.Backend, p *redistest.Proxy, locker, rival *lock.Locker) {
		for range 2 { // the first time the server learns the scripts
			p.Reset()
			lease := claimUnder(t, locker, "k", time.Hour)
			wantState(t, locker, "held", lock.Held)
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := p.RoundTrips(); got != 4 {
			t.Errorf("%d round trips (%q), want 4: claim, claim and look, release", got, p.Commands())
		}
	})
}

func TestExtendUnderAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl), lock.WithoutRenewal())
		lease := claimUnder(t, locker, "k", time.Minute)
		if err := lease.Extend(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(lease.Until()))
		wantState(t, locker, "as long as it is valid", lock.Held)
		time.Sleep(time.Hour/100 + time.Second)
		wantState(t, locker, "when the lease is over", lock.Abandoned)
		time.Sleep(time.Minute)
		wantState(t, locker, "when lease and hold are over", lock.Granted)
	})
}

// The key may stay taken for long after the lease: so the retries of an unconfirmed Release go on for as long.
func TestUnconfirmedReleaseOfALongClaim(t *testing.T) {
	for name, extend := range map[string]bool{"hold": false, "extend, answered": true, "extend, unanswered": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				locker := b.locker(t, lock.WithTTL(ttl))
				load(t, locker)
				lease := claimUnder(t, locker, "k", map[bool]time.Duration{false: 24 * time.Hour}[extend])
				if answered := name == "extend, answered"; extend {
					b.deaf.Store(!answered) // it is carried out all the same
					if err := lease.Extend(t.Context(), 24*time.Hour); (err == nil) != answered {
						t.Fatalf("Extend: %v", err)
					}
					b.deaf.Store(false)
				}
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
