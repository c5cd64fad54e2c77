package lock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// gauges returns the counts that rise and fall.
func gauges(s lock.Stats) [7]int {
	return [...]int{s.Leases, s.Waiters, s.Subscriptions, s.Queued, s.InFlight, s.Pending, s.PendingBytes}
}

// doAnything does one operation on a key, and leaves a lease in one of the ways in which a lease can be left.
func doAnything(ctx context.Context, l *lock.Locker, key string) {
	switch rand.IntN(6) {
	case 0, 1:
		c, err := l.Claim(ctx, key, nil, time.Duration(rand.IntN(2))*30*time.Millisecond)
		if err != nil || c.State != lock.Granted {
			return
		}
		switch rand.IntN(5) {
		case 0:
			c.Lease.Abandon()
		case 1:
			c.Lease.AbandonAt(time.Now().Add(50 * time.Millisecond))
		case 2:
			_ = c.Lease.Settle(ctx, []byte("v"), 40*time.Millisecond)
		case 3:
			_ = c.Lease.Release(ctx)
		case 4:
			c.Lease.ReleaseInBackground(ctx)
		}
	case 2:
		if lease, err := l.Acquire(ctx, key); err == nil {
			_ = lease.Extend(ctx, 60*time.Millisecond)
			_ = lease.Release(ctx)
		}
	case 3:
		_, _ = l.Wait(ctx, key)
	case 4:
		if info, err := l.Inspect(ctx, l.StorageKey(key)); err == nil && info.Token != "" {
			_ = l.Forget(ctx, info.Key, info.Token, lock.EvenIfLive())
		}
	case 5:
		info, err := l.Inspect(ctx, l.StorageKey(key))
		if settle := func([]byte) ([]byte, error) { return nil, nil }; err == nil && info.State == lock.Abandoned {
			_ = l.SettleAbandoned(ctx, info.Key, info.Token, settle, 20*time.Millisecond)
		}
	}
}

// disturb breaks and heals the network until done is closed.
func disturb(p *redistest.Proxy, done <-chan struct{}) {
	for {
		select {
		case <-done:
			p.Delay(0)
			p.Heal()
			return
		case <-time.After(rand.N(60 * time.Millisecond)):
		}
		switch rand.IntN(4) {
		case 0:
			p.Cut()
		case 1:
			p.BlackHole()
		case 2:
			p.Heal()
		case 3:
			p.Delay(rand.N(20 * time.Millisecond))
		}
	}
}

// However operations end, on a network that breaks, nothing is counted below zero, or for good. Close changes nothing
// about that.
func TestStatsFallBackToZero(t *testing.T) {
	t.Parallel()
	for name, closes := range map[string]bool{"open": false, "closed meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, redistest.Start(t).Addr())
			l := newLocker(t, p.Client(t, honorsDeadlines), lock.WithTTL(150*time.Millisecond), lock.WithOpTimeout(60*time.Millisecond))
			done := make(chan struct{})
			var faults, callers sync.WaitGroup
			faults.Go(func() { disturb(p, done) })
			for i := range 40 {
				callers.Go(func() {
					for n := range 30 {
						ctx, cancel := context.WithTimeout(context.Background(), rand.N(100*time.Millisecond))
						doAnything(ctx, l, fmt.Sprint(rand.IntN(12)))
						cancel()
						for _, n := range gauges(l.Stats()) {
							if n < 0 {
								t.Errorf("%+v", l.Stats())
							}
						}
						if closes && i == 0 && n == 15 {
							over, cancel := context.WithCancel(context.Background())
							cancel()
							_ = l.Close(over) // and does not wait
						}
					}
				})
			}
			callers.Wait()
			close(done)
			faults.Wait()
			eventually(t, "all is zero", func() bool { return gauges(l.Stats()) == [7]int{} })
			_ = l.Close(t.Context()) // which says what the first Close could not store
		})
	}
}
