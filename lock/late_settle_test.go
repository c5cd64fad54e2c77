package lock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// settleInVain settles while the server cannot store anything, or is silent.
func settleInVain(t *testing.T, lease *lock.Lease, value []byte, keep time.Duration) {
	t.Helper()
	if err := lease.Settle(t.Context(), value, keep); !errors.Is(err, lock.ErrPending) {
		t.Fatalf("Settle: %v, want ErrPending", err)
	}
}

// wantStats checks the counts of settlements.
func wantStats(t *testing.T, locker *lock.Locker, want lock.Stats) {
	t.Helper()
	s := locker.Stats()
	if got := (lock.Stats{
		Pending: s.Pending, PendingBytes: s.PendingBytes, SettledLate: s.SettledLate, SettlesGivenUp: s.SettlesGivenUp,
	}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A value whose Settle got no reply is stored when the server is back, for what is left of its ttl.
//
// fault: Redis silent or full for longer than a lease, and back, with WithAtMostOnce
func TestLateSettle(t *testing.T) {
	const keep = time.Hour
	for name, test := range map[string]struct {
		trouble time.Duration
		silent  bool // and not only full
		hold    bool
		forget  bool       // the server loses the key meanwhile
		during  lock.State // what a rival is told when the trouble is about to end, if the server answers
		opts    []lock.Option
	}{
		"full for six leases":               {trouble: 6 * ttl, hold: true, during: lock.Held},
		"full, without a hold":              {trouble: 6 * ttl, during: lock.Held},
		"full, and the lease runs out":      {trouble: 6 * ttl, hold: true, during: lock.Abandoned, opts: []lock.Option{lock.WithoutRenewal()}},
		"silent for two leases":             {trouble: 2 * ttl, silent: true, hold: true},
		"silent for two leases, no hold":    {trouble: 2 * ttl, silent: true},
		"silent, and the key is gone":       {trouble: 2 * ttl, silent: true, hold: true, forget: true},
		"full for most of the time to keep": {trouble: keep - 2*time.Minute, hold: true, during: lock.Held},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				locker := b.locker(t, append(test.opts, lock.WithTTL(ttl))...)
				load(t, locker)
				hold := time.Duration(0)
				if test.hold {
					hold = keep
				}
				lease := claimUnder(t, locker, "k", hold)
				b.full.Store(true)
				b.silent.Store(test.silent)
				begun := time.Now()
				settleInVain(t, lease, []byte("v"), keep)
				wantStats(t, locker, lock.Stats{Pending: 1, PendingBytes: len(valueStart+someToken+someTime) + 1})

				time.Sleep(test.trouble - time.Since(begun))
				if test.during != 0 {
					wantState(t, b.locker(t), "during the trouble", test.during)
				}
				if test.forget {
					b.server.Del(locker.StorageKey("k"))
				}
				b.full.Store(false)
				b.silent.Store(false)
				time.Sleep(time.Minute) // more than the longest pause
				synctest.Wait()
				claim := wantState(t, b.locker(t), "at the end", lock.Settled)
				if string(claim.Value) != "v" || !claim.SettledAt.Equal(begun) {
					t.Errorf("%q, settled at %v, want v, %v", claim.Value, claim.SettledAt, begun)
				}
				left := b.server.TTL(locker.StorageKey("k"))
				const try = 500 * time.Millisecond // its second command has the ttl of the first
				if want := keep - time.Since(begun); left < want-time.Millisecond || left > want+try {
					t.Errorf("it stays for %v, want %v", left, want)
				}
				wantStats(t, locker, lock.Stats{SettledLate: 1})
				closeWithin(t, locker)
			})
		})
	}
}

// A pending Settle ends, and with it the renewals: its claim must not last for ever.
func TestLateSettleIsGivenUp(t *testing.T) {
	for name, test := range map[string]struct {
		keep  time.Duration
		after time.Duration
	}{
		"its time is over": {keep: 15 * time.Second, after: 15 * time.Second},
		"an hour is over":  {keep: 24 * time.Hour, after: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				locker := b.locker(t, lock.WithTTL(ttl))
				load(t, locker)
				lease := acquire(t, locker, "k")
				b.full.Store(true)
				settleInVain(t, lease, []byte("v"), test.keep)
				time.Sleep(test.after - time.Second)
				if locker.Stats().Pending != 1 || lease.Err() != nil {
					t.Errorf("before the end: %+v, the lease: %v", locker.Stats(), lease.Err())
				}
				time.Sleep(2 * time.Second)
				wantStats(t, locker, lock.Stats{SettlesGivenUp: 1})
				time.Sleep(ttl)
				if !errors.Is(lease.Err(), lock.ErrLost) {
					t.Errorf("the lease: %v, want ErrLost", lease.Err())
				}
				b.full.Store(false)
				if next := wantState(t, locker, "at the end", lock.Granted); next.Lease != nil {
					if err := next.Lease.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
				closeWithin(t, locker)
			})
		})
	}
}

// The end of the lease ends a pending Settle at once: nothing is sent for it any more.
func TestLateSettleEndsWithItsLease(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *bubble, *lock.Locker, *lock.Lease){
		"released": func(t *testing.T, _ *bubble, _ *lock.Locker, lease *lock.Lease) {
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"another has the key": func(t *testing.T, b *bubble, locker *lock.Locker, _ *lock.Lease) {
			if err := forget(t.Context(), locker, "k"); err != nil {
				t.Fatal(err)
			}
			acquire(t, b.locker(t), "k")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				locker := b.locker(t, lock.WithTTL(ttl), lock.WithoutRenewal())
				load(t, locker)
				lease := acquire(t, locker, "k")
				b.full.Store(true)
				settleInVain(t, lease, []byte("v"), time.Hour)
				end(t, b, locker, lease)
				synctest.Wait()
				stands, _ := b.server.Get(locker.StorageKey("k"))
				b.full.Store(false)
				time.Sleep(ttl / 2)
				synctest.Wait()
				if pending := locker.Stats().Pending; pending != 0 {
					t.Errorf("%d values are pending", pending)
				}
				if now, _ := b.server.Get(locker.StorageKey("k")); now != stands {
					t.Errorf("the key holds %q, and %q before", now, stands)
				}
				closeWithin(t, locker)
			})
		})
	}
}

// Close tries each pending value once more.
func TestCloseSettlesWhatIsPending(t *testing.T) {
	for name, stillFull := range map[string]bool{"the server is back": false, "it is not": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				locker := b.locker(t, lock.WithTTL(ttl))
				load(t, locker)
				first, second := acquire(t, locker, "k"), acquire(t, locker, "k2")
				b.full.Store(true)
				settleInVain(t, first, []byte("v"), time.Hour)
				settleInVain(t, second, []byte("v2"), time.Hour)
				time.Sleep(ttl)
				b.full.Store(stillFull)
				if stillFull {
					closeGivingUp(t, locker, 2)
					wantStats(t, locker, lock.Stats{SettlesGivenUp: 2})
				} else {
					closeWithin(t, locker)
					wantStats(t, locker, lock.Stats{SettledLate: 2})
					wantState(t, b.locker(t), "after Close", lock.Settled)
				}
			})
		})
	}
}

// After Close no Settle is retried in the background.
func TestSettleAfterCloseIsNotPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl))
		load(t, locker)
		lease := acquire(t, locker, "k")
		closeWithin(t, locker)
		b.full.Store(true)
		err := lease.Settle(t.Context(), []byte("v"), time.Hour)
		if errors.Is(err, lock.ErrPending) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Settle: %v, want DeadlineExceeded, and not ErrPending", err)
		}
		closeGivingUp(t, locker, 1)
	})
}

// At most 64 MiB are pending; the largest values give way to a new one.
func TestPendingValuesAreBounded(t *testing.T) {
	const most = 64 << 20
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl))
		load(t, locker)
		oldest, newer, newest := acquire(t, locker, "1"), acquire(t, locker, "2"), acquire(t, locker, "3")
		huge := acquire(t, locker, "4")
		b.silent.Store(true)
		settleInVain(t, oldest, make([]byte, most/2), time.Hour)
		settleInVain(t, newer, make([]byte, most/4), time.Hour)
		if n := locker.Stats().Pending; n != 2 {
			t.Errorf("%d values are pending, want 2", n)
		}
		if err := huge.Settle(t.Context(), make([]byte, most), time.Hour); err == nil || errors.Is(err, lock.ErrPending) {
			t.Errorf("Settle of what is larger than all: %v, want an error that is not ErrPending", err)
		}
		settleInVain(t, newest, make([]byte, most/2-1), time.Hour)
		synctest.Wait()
		if got := locker.Stats(); got.Pending != 2 || got.PendingBytes > most || got.SettlesGivenUp != 2 {
			t.Errorf("%+v, want 2 pending in at most %d bytes, and 2 given up", got, most)
		}
		closeGivingUp(t, locker, 2)
	})
}

// Abandon does not let a claim run out while its value is pending.
func TestAbandonWaitsForAPendingValue(t *testing.T) {
	for name, abandon := range map[string]func(*lock.Lease){
		"Abandon":   (*lock.Lease).Abandon,
		"AbandonAt": func(l *lock.Lease) { l.AbandonAt(time.Now()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				locker := b.locker(t, lock.WithTTL(ttl))
				load(t, locker)
				lease := acquire(t, locker, "k")
				b.full.Store(true)
				settleInVain(t, lease, []byte("v"), time.Hour)
				abandon(lease)
				time.Sleep(3 * ttl)
				wantState(t, b.locker(t), "three leases later", lock.Held)
				b.full.Store(false)
				time.Sleep(time.Minute)
				synctest.Wait()
				wantState(t, locker, "at the end", lock.Settled)
				closeWithin(t, locker)
			})
		})
	}
}

// A pending value takes the memory of its bytes, and not of the capacity that it was made with.
func TestPendingValueHasNoRoom(t *testing.T) {
	const room, n = 1 << 20, 32
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := b.locker(t, lock.WithTTL(ttl))
		load(t, locker)
		b.full.Store(true)
		before := heap()
		for i := range n {
			lease, ok, err := locker.TryAcquire(t.Context(), fmt.Sprint(i))
			for tries := 0; err != nil && tries < 20; tries++ { // the earlier values' tries are in its way
				lease, ok, err = locker.TryAcquire(t.Context(), fmt.Sprint(i, "after", tries)) // the first may have arrived
			}
			if err != nil || !ok {
				t.Fatalf("TryAcquire: %v, %v", ok, err)
			}
			add := func(value []byte) []byte { return append(value, 'v') }
			if err := lease.SettleAppend(t.Context(), room, add, nil, time.Hour); !errors.Is(err, lock.ErrPending) {
				t.Fatalf("SettleAppend: %v, want ErrPending", err)
			}
		}
		time.Sleep(time.Minute) // the first commands, which have the room, are given up
		synctest.Wait()
		if after := heap(); after > before+n*room/2 {
			t.Errorf("%d values of a byte take %d KiB", n, (after-before)>>10)
		}
		closeGivingUp(t, locker, n)
	})
}
