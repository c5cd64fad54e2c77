package lease_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/lock/internal/lease"
)

// The timer of a lease that is over does not keep its memory until the next tick: each request has a lease.
func TestEndedLeaseIsCollected(t *testing.T) {
	t.Parallel()
	w := &world{T: t, backend: &backend{begin: time.Now()}}
	w.config = lease.Config{TTL: time.Hour, Renew: true, Group: background.NewGroup(t.Context()), Backlog: &w.backlog}
	released := func() weak.Pointer[lease.Core] {
		core, h := w.newLease(w.backend)
		if err := h.Release(context.Background()); err != nil {
			t.Error(err)
		}
		return weak.Make(core)
	}()
	for range 10 {
		if runtime.GC(); released.Value() == nil {
			return
		}
	}
	t.Error("a lease that was released is still in memory")
}

// At its end a lease is not valid any more, also before its timer has fired.
func TestJoinAtTheEndOfALease(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		var calls sync.WaitGroup
		for range 200 {
			calls.Go(func() {
				until := time.Now().Add(valid)
				wakeUp := time.NewTimer(valid) // before that of the lease
				_, h := w.newLease(w.backend)
				<-wakeUp.C
				if h.Join(context.Background(), new(lease.Handle)) || time.Now() != until {
					w.Errorf("joined %v after the end", time.Since(until))
				}
			})
		}
		calls.Wait()
	}, withoutRenewal)
}

// Leases are ticked, and end, while ticks and calls come at the same instant. A lease has no timer after its end.
func TestTimersOfManyLeases(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"renew": {ours}}, func(w *world) {
		var calls sync.WaitGroup
		for n := range 200 {
			calls.Go(func() {
				core, h := w.newLease(w.backend)
				time.Sleep(time.Duration(n%3) * ttl / 6) // some end just when their tick comes
				if n%2 == 0 {
					h.AbandonAt(time.Now().Add(time.Hour))
				}
				time.Sleep(time.Duration(n%5) * ttl / 6)
				if err := h.Err(); err != nil {
					w.Errorf("lease %d: %v", n, err)
				}
				_ = h.Release(context.Background())
				if core.HasTimer() {
					w.Errorf("lease %d has a timer after its end", n)
				}
			})
			if n%10 == 0 {
				time.Sleep(ttl / 6)
			}
		}
		calls.Wait()
		synctest.Wait()
		w.forget()
		_ = w.release()
		w.forget()
		time.Sleep(time.Minute)
		synctest.Wait()
		w.sent("")
	})
}
