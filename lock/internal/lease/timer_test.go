package lease_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

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
