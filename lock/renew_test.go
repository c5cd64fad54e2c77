package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// In a synctest bubble time stands still while a goroutine runs, and jumps to the next timer when all are blocked: the
// instants below are exact.

const ttl = 9 * time.Second

// valid is how long a lease of length ttl is valid.
const valid = ttl - ttl/100 - 2*time.Millisecond

func TestLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl))
		start := time.Now()
		lease := acquire(t, locker, "k")

		if got, want := lease.Until().Sub(start), valid; got != want {
			t.Errorf("Until is %v after the start, want %v", got, want)
		}
		time.Sleep(10 * ttl)
		synctest.Wait()
		if err := lease.Context().Err(); err != nil {
			t.Fatalf("after ten lease lengths the context is done: %v", context.Cause(lease.Context()))
		}
		if got, want := lease.Until().Sub(start), 10*ttl+valid; got != want {
			t.Errorf("Until is %v after the start, want %v", got, want)
		}
		if _, ok, err := locker.TryAcquire(t.Context(), "k"); ok || err != nil {
			t.Errorf("TryAcquire of a renewed key: %v, %v, want false, nil", ok, err)
		}
		if got := b.commands("EVALSHA") + b.commands("EVAL"); got < 30 || got > 31 {
			t.Errorf("%d renewals in ten lease lengths, want 30 and one more for the script's source", got)
		}
	})
}

func TestFixedLeaseEndsBeforeTheServerLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl), lock.WithoutRenewal())
		start := time.Now()
		lease := acquire(t, locker, "k")

		<-lease.Context().Done()
		if got, want := time.Since(start), valid; got != want {
			t.Errorf("the context ended after %v, want %v", got, want)
		}
		if got := context.Cause(lease.Context()); !errors.Is(got, lock.ErrLost) {
			t.Errorf("cause %v, want ErrLost", got)
		}
		if !b.server.Exists(locker.StorageKey("k")) {
			t.Error("the server let go before the context was done")
		}
	})
}

// fault: black hole, no RST
func TestBlackHoleEndsTheLeaseOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl))
		start := time.Now()
		lease := acquire(t, locker, "k")

		time.Sleep(ttl) // renewed at 3 s, 6 s and 9 s
		synctest.Wait()
		b.silent.Store(true)
		<-lease.Context().Done()
		if got, want := time.Since(start), ttl+valid; got != want {
			t.Errorf("the context ended after %v, want %v", got, want)
		}
		if got := context.Cause(lease.Context()); !errors.Is(got, lock.ErrLost) {
			t.Errorf("cause %v, want ErrLost", got)
		}
		if !b.server.Exists(locker.StorageKey("k")) {
			t.Error("the server let go before the context was done")
		}
	})
}

// fault: redis-server SIGSTOP, shorter than the lease
func TestRenewalRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl))
		lease := acquire(t, locker, "k")

		for range 5 {
			b.silent.Store(true)
			time.Sleep(ttl / 2)
			b.silent.Store(false)
			time.Sleep(ttl / 2)
		}
		if err := lease.Context().Err(); err != nil {
			t.Errorf("silence shorter than the lease ended it: %v", context.Cause(lease.Context()))
		}
	})
}

// fault: FLUSHALL, DEL, eviction of the key
// fault: a foreign value or type under the key
func TestLossIsToldByTheNextRenewal(t *testing.T) {
	lose := map[string]func(*bubble, string){
		"removed":      func(b *bubble, key string) { b.server.Del(key) },
		"emptied":      func(b *bubble, _ string) { b.server.FlushAll() },
		"foreign":      func(b *bubble, key string) { _ = b.server.Set(key, "foreign") },
		"foreign type": func(b *bubble, key string) { b.server.Del(key); _, _ = b.server.Push(key, "foreign") },
	}
	for name, lose := range lose {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				locker := b.locker(t, lock.WithTTL(ttl))
				lease := acquire(t, locker, "k")
				time.Sleep(time.Second)
				lose(b, locker.StorageKey("k"))

				start := time.Now()
				<-lease.Context().Done()
				if got := time.Since(start); got > ttl/3 {
					t.Errorf("told after %v, want at most %v", got, ttl/3)
				}
				if got := context.Cause(lease.Context()); !errors.Is(got, lock.ErrLost) {
					t.Errorf("cause %v, want ErrLost", got)
				}
			})
		})
	}
}

func TestAbandonLetsTheLeaseRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl))
		lease := acquire(t, locker, "k")
		time.Sleep(ttl) // the third renewal is just over
		synctest.Wait()
		lease.Abandon()

		start := time.Now()
		<-lease.Context().Done()
		if got, want := time.Since(start), valid; got != want {
			t.Errorf("the context ended %v after the last renewal, want %v", got, want)
		}
		time.Sleep(ttl - valid)
		if b.server.Exists(locker.StorageKey("k")) {
			t.Error("the key is still there when the lease has run out")
		}
	})
}

func TestAbandonAtEndsTheRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl))
		lease := acquire(t, locker, "k")
		start := time.Now()
		lease.AbandonAt(start.Add(ttl + ttl/2)) // between the fourth renewal and the fifth

		<-lease.Context().Done()
		if got, want := time.Since(start), ttl+ttl/3+valid; got.Round(time.Millisecond) != want.Round(time.Millisecond) {
			t.Errorf("the context ended %v after the start, want %v", got, want)
		}
		time.Sleep(ttl - valid)
		if b.server.Exists(locker.StorageKey("k")) {
			t.Error("the key is still there when the lease has run out")
		}
	})
}

func TestAbandonAtIsForgottenWhileSettleIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl))
		lease := acquire(t, locker, "k")
		start := time.Now()
		lease.AbandonAt(start.Add(ttl / 2))
		b.full.Store(true)
		if err := lease.Settle(t.Context(), []byte("done"), time.Hour); err == nil {
			t.Fatal("no error although the server swallows every Settle")
		}
		time.Sleep(ttl)
		synctest.Wait()
		if got, least := lease.Until().Sub(start), ttl+ttl/2; got < least {
			t.Errorf("the lease lasts until %v after the start, want at least %v", got, least)
		}
		closeGivingUp(t, locker, 1)
	})
}

func TestRenewalNeverShortensAnExtendedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl))
		start := time.Now()
		lease := acquire(t, locker, "k")
		if err := lease.Extend(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := lease.Extend(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl)
		synctest.Wait()
		if got, want := b.server.TTL(locker.StorageKey("k")), time.Minute-ttl; got != want {
			t.Errorf("%v left on the server, want %v", got, want)
		}
		if got, want := lease.Until().Sub(start), time.Minute-600*time.Millisecond-2*time.Millisecond; got != want {
			t.Errorf("Until is %v after the start, want %v", got, want)
		}
	})
}

func TestExtendDoesNotReviveALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl), lock.WithoutRenewal())
		lease := acquire(t, locker, "k")
		<-lease.Context().Done() // and the server still has the claim
		until := lease.Until()
		if err := lease.Extend(t.Context(), time.Minute); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Extend: %v, want ErrLost", err)
		}
		if got := lease.Until(); got != until {
			t.Errorf("Until has moved by %v", got.Sub(until))
		}
		time.Sleep(ttl - valid)
		acquire(t, locker, "k")
	})
}

// A Settle without a reply keeps even the claim of an abandoned lease alive.
func TestUnconfirmedSettleKeepsTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl))
		lease := acquire(t, locker, "k")
		time.Sleep(ttl / 2) // renewed once, at a third
		lease.Abandon()
		time.Sleep(ttl / 2)
		b.full.Store(true)
		if err := lease.Settle(t.Context(), []byte("v"), time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Settle: %v, want DeadlineExceeded", err)
		}
		time.Sleep(ttl / 2) // longer than the abandoned claim would have stood
		if claim, err := b.locker(t).Claim(t.Context(), "k", nil, 0); err != nil || claim.State != lock.Held {
			t.Errorf("while it is tried again: %v, %v, want held", claim.State, err)
		}
		b.full.Store(false)
		<-lease.Context().Done()
		claim, err := locker.Claim(t.Context(), "k", nil, 0)
		if err != nil || string(claim.Value) != "v" {
			t.Errorf("the key holds %q, %v, want v", claim.Value, err)
		}
	})
}

func TestCloseEndsRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl))
		start := time.Now()
		lease := acquire(t, locker, "k")
		if err := locker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := locker.TryAcquire(t.Context(), "other"); !errors.Is(err, lock.ErrClosed) {
			t.Errorf("TryAcquire after Close: %v, want ErrClosed", err)
		}
		<-lease.Context().Done()
		if got := time.Since(start); got != valid {
			t.Errorf("the context ended after %v, want %v", got, valid)
		}
		if err := lease.Settle(t.Context(), []byte("v"), time.Hour); err != nil {
			t.Errorf("Settle after Close: %v", err)
		}
	})
}
