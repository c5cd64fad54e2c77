package lease_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/store"
)

func TestContext(t *testing.T) {
	t.Parallel()
	type key struct{}
	run(t, nil, func(w *world) {
		joined := new(lease.Handle)
		if !w.first.Join(context.WithValue(context.Background(), key{}, "value"), joined) {
			w.Fatal("Join has failed")
		}
		before := joined.Context()
		if before.Value(key{}) != "value" || before.Err() != nil || joined.Context() != before {
			w.Error("the context is not that of the handle")
		}
		wantIs(t, "Settle", w.settle("v"), nil)
		wantEnd(t, joined, context.Canceled) // made before the end
		wantEnd(t, w.first, context.Canceled)
		if before.Err() == nil || joined.Context() != before {
			w.Error("the context has not ended")
		}
	})
}

// The last Release of several handles frees the key; each other one ends only its own handle.
func TestJoin(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]int{
		"the first one last": {1, 2, 0}, "the first one first": {0, 1, 2}, "the first one between": {2, 0, 1},
	} {
		t.Run(name, in(nil, func(w *world) {
			handles := []*lease.Handle{w.first, new(lease.Handle), new(lease.Handle)}
			for _, h := range handles[1:] {
				if !w.first.Join(w.Context(), h) {
					w.Fatal("Join has failed")
				}
			}
			for n, i := range order {
				w.sent("")
				for range 2 {
					wantIs(w.T, "Release", handles[i].Release(w.Context()), nil)
				}
				wantEnd(w.T, handles[i], context.Canceled)
				for _, still := range order[n+1:] {
					wantEnd(w.T, handles[still], nil)
					wantIs(w.T, "Settle", settle(handles[i], "v", time.Hour), store.ErrLost)
				}
				if joined := new(lease.Handle); handles[i].Join(w.Context(), joined) {
					w.Error("joined a handle that is released")
				}
			}
			w.sent("release 0s")
			w.wantPhase("ended")
		}))
	}
}

// A handle that is released can no longer change the lease, while the others can.
func TestReleasedHandle(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		other := new(lease.Handle)
		if !w.first.Join(w.Context(), other) {
			w.Fatal("Join has failed")
		}
		wantIs(t, "Release", w.release(), nil)
		w.first.AbandonAt(time.Now())
		w.first.AbandonAt(w.backend.begin)
		wantIs(t, "Extend", w.first.Extend(w.Context(), time.Minute), store.ErrLost)
		w.sent("")
		w.at(time.Minute)
		wantEnd(t, other, nil)
		wantIs(t, "Extend", other.Extend(w.Context(), time.Minute), nil)
		wantIs(t, "Settle", settle(other, "v", time.Hour), nil)
		wantEnd(t, other, context.Canceled)
	})
}

// The end of the lease ends each handle with the same cause.
func TestLossEndsAllHandles(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"renew": {nobody}}, func(w *world) {
		other := new(lease.Handle)
		if !w.first.Join(w.Context(), other) {
			w.Fatal("Join has failed")
		}
		w.at(3 * time.Second)
		wantEnd(t, w.first, store.ErrLost)
		wantEnd(t, other, store.ErrLost)
		if w.first.Join(w.Context(), new(lease.Handle)) {
			w.Error("joined a lease that is lost")
		}
		wantIs(t, "Release", w.release(), nil)
		w.sent("renew 3s") // other may still settle
		wantIs(t, "Release", other.Release(w.Context()), nil)
		w.sent("renew 3s, release 3s")
	})
}

// A lease can be joined until it is lost.
func TestJoinAtTheEnd(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		w.at(valid - 1)
		if !w.first.Join(w.Context(), new(lease.Handle)) {
			w.Error("not joined while the lease is valid")
		}
		w.at(valid)
		if w.first.Join(w.Context(), new(lease.Handle)) {
			w.Error("joined a lease that is over")
		}
	}, withoutRenewal)
}

func TestAbandonAt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		at   []time.Duration // what AbandonAt is called with; the last one counts
		sent string
		end  time.Duration
	}{
		"before a renewal":        {[]time.Duration{5 * time.Second}, "renew 3s", 3*time.Second + valid},
		"at a renewal":            {[]time.Duration{6 * time.Second}, "renew 3s", 3*time.Second + valid},
		"just after a renewal":    {[]time.Duration{6*time.Second + 1}, "renew 3s, renew 6s", 6*time.Second + valid},
		"in the past":             {[]time.Duration{-time.Second}, "", valid},
		"later, and then earlier": {[]time.Duration{time.Hour, 5 * time.Second}, "renew 3s", 3*time.Second + valid},
		"earlier, and then later": {[]time.Duration{time.Second, 5 * time.Second}, "renew 3s", 3*time.Second + valid},
	} {
		t.Run(name, in(nil, func(w *world) {
			for _, at := range test.at {
				w.first.AbandonAt(w.backend.begin.Add(at))
			}
			w.at(test.end - 1)
			w.wantErr(nil)
			w.sent(test.sent)
			w.at(test.end)
			w.wantErr(store.ErrLost)
			w.wantCounts(0, w.config.Counts.Renewals.Load(), 0) // it was meant to run out
		}))
	}
}

func TestAbandonAtNever(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		w.first.AbandonAt(w.backend.begin.Add(time.Second))
		w.first.AbandonAt(time.Time{})
		w.at(time.Minute)
		w.wantErr(nil)
	})
}

// A Settle that is pending keeps the claim alive, although the lease was abandoned before, or is now.
func TestAbandonAroundAPendingSettle(t *testing.T) {
	t.Parallel()
	for name, abandon := range map[string]func(*world){
		"Abandon":   func(w *world) { w.first.AbandonAt(time.Now()) },
		"AbandonAt": func(w *world) { w.first.AbandonAt(time.Now().Add(4 * time.Second)) },
	} {
		t.Run(name, in(map[string][]answer{"settle": {down}}, func(w *world) {
			abandon(w)
			w.at(2 * time.Second)
			wantIs(w.T, "Settle", w.settle("v"), lease.ErrPending)
			abandon(w)
			w.at(5 * time.Minute)
			w.wantErr(nil)
			if got := w.count("renew"); got < 90 {
				w.Errorf("%d renewals in 5 minutes", got)
			}
		}))
	}
}

func TestValidity(t *testing.T) {
	t.Parallel()
	for length, want := range map[time.Duration]time.Duration{
		10 * ms:          7900 * time.Microsecond,
		10 * time.Second: 9898 * ms,
		time.Hour:        time.Hour - 36*time.Second - 2*ms,
	} {
		if got := lease.Validity(length); got != want {
			t.Errorf("of %v: %v, want %v", length, got, want)
		}
	}
}

// fault: client SIGSTOP longer than the TTL, then SIGCONT. The timer that ends the lease has not fired yet. A caller that
// asks past the end of the lease learns that it is over, and what was derived from the context is done.
func TestEndIsSeenBeforeTheTimerFires(t *testing.T) {
	t.Parallel()
	for name, isOver := range map[string]func(h *lease.Handle, ctx context.Context) bool{
		"Err":            func(h *lease.Handle, _ context.Context) bool { return h.Err() == store.ErrLost },
		"context's Err":  func(_ *lease.Handle, ctx context.Context) bool { return ctx.Err() == context.Canceled },
		"context's Done": func(_ *lease.Handle, ctx context.Context) bool { return isClosed(ctx.Done()) },
		"Cause":          func(_ *lease.Handle, ctx context.Context) bool { return context.Cause(ctx) == store.ErrLost },
		"Extend": func(h *lease.Handle, ctx context.Context) bool {
			return h.Extend(context.Background(), ttl) == store.ErrLost
		},
		"derived then": func(_ *lease.Handle, ctx context.Context) bool {
			derived, cancel := context.WithCancel(ctx)
			defer cancel()
			return context.Cause(derived) == store.ErrLost
		},
	} {
		t.Run(name, in(nil, func(w *world) {
			w.backend.onSend = func(string) { time.Sleep(ttl) } // until the tick returns, there is no timer
			ctx := w.first.Context()
			done := ctx.Done()
			derived, cancel := context.WithCancel(ctx)
			defer cancel()

			w.at(valid - 1)
			if w.first.Err() != nil || ctx.Err() != nil || context.Cause(ctx) != nil || isClosed(ctx.Done()) {
				w.Errorf("before the end: %v, %v, %v", w.first.Err(), ctx.Err(), context.Cause(ctx))
			}
			w.at(valid)
			if isClosed(done) {
				w.Fatal("the timer has fired")
			}
			if !isOver(w.first, ctx) {
				w.Error("the lease does not seem to be over")
			}
			if !isClosed(done) || context.Cause(derived) != store.ErrLost {
				w.Errorf("the end of a derived context has the cause %v", context.Cause(derived))
			}
			w.wantErr(store.ErrLost)
			w.wantCounts(0, 0, 1)
			if got := fmt.Sprint(ctx); got != "lock.Lease.Context" {
				w.Errorf("the context as a text: %s", got)
			}
			time.Sleep(ttl)
		}))
	}
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
