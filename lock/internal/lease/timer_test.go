package lease_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A timer is used again only if it has never fired, or it could still call the tick of the lease that had it.
func TestTimersAreUsedAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		use    func(w *world)
		pooled bool
	}{
		"never fired":             {func(w *world) { _ = w.release() }, true},
		"reset, but never fired":  {func(w *world) { w.first.Abandon(); _ = w.release() }, true},
		"fired once":              {func(w *world) { w.at(4 * time.Second); _ = w.release() }, false},
		"fired, and reset since":  {func(w *world) { w.at(4 * time.Second); w.first.Abandon(); _ = w.release() }, false},
		"while the tick runs":     {func(w *world) { w.at(3100 * ms); _ = w.release() }, false},
		"stopped by its own tick": {func(w *world) { w.answerWith("renew", nobody); w.at(4 * time.Second) }, false},
		"still needed":            {func(*world) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, map[string][]answer{"renew": {slow(300*ms, ours)}}, func(w *world) {
				test.use(w)
				found, clean := w.timers.Pooled()
				if found && !test.pooled {
					w.Error("the timer is used again")
				}
				if found && !clean { // the race detector lets a sync.Pool drop some, so it may not be found
					w.Error("the timer in the pool has a lease, or has fired, or runs")
				}
			})
		})
	}
}

// Leases that take over each other's timers are ticked for themselves, and end for themselves, while ticks and calls
// come at the same instant.
func TestTimersAreNotMixedUp(t *testing.T) {
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
