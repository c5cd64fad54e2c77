package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// A Hold renews the lease as well, and renewals count from it.
func TestHold(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		w.at(2 * time.Second)
		wantIs(t, "Hold", w.first.Hold(w.Context(), time.Hour), nil)
		w.wantUntil(2*time.Second + valid)
		w.at(8 * time.Second)
		w.sent("hold 2s, renew 5s, renew 8s")
		w.wantErr(nil)
	})
}

// No renewal is sent while a Hold is in flight: it would make a Hold that arrives late look early.
func TestHoldSuspendsRenewals(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"hold": {slow(2*time.Second, ours)}}, func(w *world) {
		w.at(2 * time.Second)
		hold := w.call(func() error { return w.first.Hold(w.Context(), time.Hour) })
		w.at(4*time.Second - 1)
		w.sent("hold 2s")
		wantIs(t, "Hold", hold(), nil)
		w.at(5 * time.Second)
		w.sent("hold 2s, renew 5s")
		w.wantUntil(5*time.Second + valid)
	})
}

// After a Hold of which nobody knows whether it arrived, the lease is not renewed.
func TestHoldFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer answer
		err    error
		end    error // of the lease, at once
	}{
		"an error":      {down, errDown, nil},
		"no reply":      {lost, context.DeadlineExceeded, nil},
		"nothing":       {nobody, store.ErrLost, store.ErrLost},
		"another claim": {another, store.ErrLost, store.ErrLost},
		"another type":  {foreign, store.ErrLost, store.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, map[string][]answer{"hold": {test.answer}}, func(w *world) {
				w.at(time.Second)
				wantIs(t, "Hold", w.first.Hold(w.Context(), time.Hour), test.err)
				w.wantErr(test.end)
				w.at(valid - 1)
				w.wantErr(test.end)
				w.at(valid)
				w.wantErr(store.ErrLost)
				w.sent("hold 1s")
				wantIs(t, "Release", w.release(), nil)
			})
		})
	}
}

// A Hold that finds the lease's own value, whose Settle is pending, does not prolong the lease: the value may expire
// sooner than the lease would.
func TestHoldFindsOurValue(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"hold": {ourValue}, "settle": {lost}}, func(w *world) {
		wantIs(t, "Settle", w.settle("v"), lease.ErrPending)
		w.at(2 * time.Second)
		wantIs(t, "Hold", w.first.Hold(w.Context(), time.Hour), nil)
		w.wantUntil(valid)
	})
}

// A second Hold that succeeds lets renewals go on.
func TestHoldAgain(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"hold": {down, ours}}, func(w *world) {
		wantIs(t, "Hold", w.first.Hold(w.Context(), time.Hour), errDown)
		w.at(4 * time.Second)
		wantIs(t, "Hold", w.first.Hold(w.Context(), time.Hour), nil)
		w.at(10 * time.Second)
		w.sent("hold 0s, hold 4s, renew 7s, renew 10s")
	})
}

// A Hold has to find what the lease has left when its caller gives up: all but the time for one operation.
func TestHoldLeast(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ at, want time.Duration }{
		"at once":             {0, ttl - opTimeout},
		"after two seconds":   {2 * time.Second, ttl - opTimeout - 2*time.Second},
		"close to the end":    {valid - 100*ms, 0},
		"with an exact limit": {ttl - opTimeout, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, nil, func(w *world) {
				w.at(test.at)
				wantIs(t, "Hold", w.first.Hold(w.Context(), time.Hour), nil)
				if got := w.backend.leasts[0]; got != test.want {
					w.Errorf("least %v, want %v", got, test.want)
				}
			}, withoutRenewal)
		})
	}
}

// A Hold waits for a renewal, and for no longer than one operation may take.
func TestHoldDuringRenewal(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		renewal answer
		sent    string
		err     error
		end     error
	}{
		"the renewal succeeds":            {slow(300*ms, ours), "renew 3s, hold 3.3s", nil, nil},
		"the renewal finds another claim": {slow(300*ms, another), "renew 3s", store.ErrLost, store.ErrLost},
		"the renewal hangs":               {slow(5*time.Second, ours), "renew 3s", context.DeadlineExceeded, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, map[string][]answer{"renew": {test.renewal}}, func(w *world) {
				w.at(3100 * ms)
				wantIs(t, "Hold", w.first.Hold(w.Context(), time.Hour), test.err)
				w.sent(test.sent)
				w.wantErr(test.end)
			})
		})
	}
}

// A Hold that was cancelled before it was sent leaves the renewals as they are.
func TestHoldThatWaitsIsCancelled(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"renew": {slow(300*ms, ours)}}, func(w *world) {
		w.at(3100 * ms)
		cause := errors.New("the request is over")
		ctx, cancel := context.WithCancelCause(w.Context())
		hold := w.call(func() error { return w.first.Hold(ctx, time.Hour) })
		cancel(cause)
		wantIs(t, "Hold", hold(), cause)
		w.at(9500 * ms)
		w.sent("renew 3s, renew 6s, renew 9s")
	})
}

// A Hold that has waited for a renewal is not sent once the lease was released meanwhile.
func TestHoldThatWaitsIsReleased(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"renew": {slow(300*ms, ours)}}, func(w *world) {
		w.at(3100 * ms)
		hold := w.call(func() error { return w.first.Hold(w.Context(), time.Hour) })
		wantIs(t, "Release", w.release(), nil)
		wantIs(t, "Hold", hold(), store.ErrLost)
		w.sent("renew 3s, release 3.1s")
		w.wantErr(context.Canceled)
	})
}

// A lease that runs out while its Hold is in flight stays lost.
func TestHoldAcrossTheEnd(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"hold": {slow(400*ms, ours)}}, func(w *world) {
		w.at(valid - 200*ms)
		hold := w.call(func() error { return w.first.Hold(w.Context(), time.Hour) })
		w.at(valid)
		w.wantErr(store.ErrLost)
		wantIs(t, "Hold", hold(), store.ErrLost)
		w.wantUntil(valid)
		w.wantErr(store.ErrLost)
	}, withoutRenewal)
}

// While a Settle is pending the claim is kept alive, although its Hold failed.
func TestHoldBesideAPendingSettle(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ settleAt, holdAt time.Duration }{
		"the Settle is pending first":       {0, time.Second},
		"the Hold has failed first":         {time.Second, 0},
		"the Settle fails during the Hold":  {200 * ms, 0},
		"the Hold fails during the Settle":  {0, 100 * ms},
		"both are sent at the same instant": {0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, map[string][]answer{"hold": {slow(400*ms, down)}, "settle": {slow(300*ms, down)}}, func(w *world) {
				hold := w.call(func() error { time.Sleep(test.holdAt); return w.first.Hold(w.Context(), time.Hour) })
				settled := w.call(func() error { time.Sleep(test.settleAt); return w.settle("v") })
				wantIs(t, "Hold", hold(), errDown)
				wantIs(t, "Settle", settled(), lease.ErrPending)
				w.at(time.Minute)
				w.wantErr(nil)
				if got := w.count("renew"); got < 15 {
					w.Errorf("%d renewals were sent in a minute", got)
				}
				w.answerWith("settle", ours)
				w.at(2 * time.Minute)
				w.wantErr(context.Canceled)
				w.wantPhase("ended")
			})
		})
	}
}

// No renewal is sent beside a Hold, even if a Settle that is pending wants the claim kept alive.
func TestNoRenewalDuringHoldForAPendingSettle(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"hold": {slow(4*time.Second, ours)}, "settle": {down}}, func(w *world) {
		hold := w.call(func() error { return w.first.Hold(w.Context(), time.Hour) })
		wantIs(t, "Settle", w.settle("v"), lease.ErrPending)
		w.at(4*time.Second - 1)
		if w.count("renew") != 0 {
			w.Error("a renewal was sent beside the Hold")
		}
		wantIs(t, "Hold", hold(), nil)
		w.at(8 * time.Second)
		if w.count("renew") == 0 {
			w.Error("no renewal was sent after the Hold")
		}
	})
}
