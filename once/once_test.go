package once_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

func TestReplay(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		d := open(t, b)
		if e := d.want(d.do(d.charge), 1, false, "executed"); e.Size == 0 || e.Run.Start.IsZero() || e.Settle.Start.IsZero() {
			t.Errorf("%+v", e)
		}
		other := open(t, b) // another process
		for range 2 {
			e := other.want(other.do(other.charge), 1, true, "replayed")
			if e.Size == 0 || e.Age <= 0 || e.Age > time.Hour || e.Claim.Start.IsZero() || !e.Run.Start.IsZero() || e.Err != nil {
				t.Errorf("%+v", e)
			}
		}
		d.wantRuns(1)
		other.wantRuns(0)
		b.Elapse(t, 24*time.Hour)
		d.want(d.do(d.charge), 2, false, "executed")
	})
}

// Each part of a key counts, and where one part ends.
func TestOtherKeys(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		d := open(t, b)
		for i, edits := range [][]edit{
			nil, {scope("bob")}, {id("2")}, {scope("an"), id("n1")}, {scope("ann1:"), id("1")}, {scope(once.Anyone)}, {scope("anyone")},
		} {
			d.want(d.do(d.charge, edits...), int64(i+1), false, "executed")
		}
		a := d.do(d.charge, operation("refund"))
		if a.err != nil || a.replayed || a.receipt.Number != 8 {
			t.Errorf("another operation: %+v", a)
		}
		if e := <-d.events; e.Operation != "refund" {
			t.Errorf("%+v", e)
		}
		if n := len(b.Keys(t)); n != 8 {
			t.Errorf("%d keys, want 8", n)
		}
		for _, key := range b.Keys(t) {
			if strings.Contains(key, "ann") {
				t.Errorf("the key %q has the scope in it", key)
			}
		}
	})
}

func TestInvalidKeys(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	d := open(t, b)
	for name, e := range map[string]edit{
		"operation": operation(""), "scope": scope(""), "id": id(""), "input": input(func() {}),
	} {
		a := d.do(d.charge, e)
		if err := refusalError(a, once.ErrInvalidKey); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if e := <-d.events; e.Outcome != "invalid-key" || e.Key != "" || e.Err == nil {
			t.Errorf("%s: %+v", name, e)
		}
	}
	d.wantRuns(0)
	if keys := b.Keys(t); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
}

func TestInput(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		d, g := open(t, b), newGate()
		done := d.inBackground(g, d.charge)
		first := func() (isRunning bool, ended time.Time) {
			t.Helper()
			a := d.do(d.charge, input("other"))
			d.wantRefused(a, once.ErrReused, "reused")
			var refused *once.Refused
			errors.As(a.err, &refused)
			return refused.FirstRunning, refused.FirstEnded
		}
		before := time.Now().Truncate(time.Millisecond)
		if isRunning, ended := first(); !isRunning || !ended.IsZero() {
			t.Errorf("while it runs: %t, %v", isRunning, ended)
		}
		d.wantRefused(d.do(d.charge, input(nil)), once.ErrInFlight, "in-flight")
		close(g.open)
		d.want(<-done, 1, false, "executed")
		if isRunning, ended := first(); isRunning || ended.Before(before) || ended.After(time.Now()) {
			t.Errorf("after it: %t, %v", isRunning, ended)
		}
		d.want(d.do(d.charge, input(map[string]int{"tip": 3, "amount": 1250})), 1, true, "replayed")
		d.want(d.do(d.charge, input(nil)), 1, true, "replayed")

		d.want(d.do(d.charge, id("2"), input(nil)), 2, false, "executed") // the first one has nothing to compare with
		d.want(d.do(d.charge, id("2")), 2, true, "replayed")
		d.wantRuns(2)
	})
}

// awaitWaiters returns when n callers wait for keys.
func awaitWaiters(t *testing.T, locker *lock.Locker, n int) {
	t.Helper()
	poll, deadline := time.NewTicker(time.Millisecond), time.After(20*time.Second)
	defer poll.Stop()
	for locker.Stats().Waiters < n {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("%+v, want %d waiters", locker.Stats(), n)
		}
	}
}

func TestWaitEnds(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		d, g := open(t, b, once.WithWait(time.Hour, 1)), newGate()
		done := d.inBackground(g, d.charge)
		ctx, cancel := context.WithCancel(t.Context())
		answers := make(chan answer, 1)
		go func() { answers <- d.doIn(ctx, d.charge) }()
		awaitWaiters(t, d.locker, 1)
		if e := d.wantRefused(d.do(d.charge), once.ErrInFlight, "in-flight"); e.Err == nil {
			t.Error("one waiter too many: the Event has no error")
		}
		cancel()
		d.wantRefused(<-answers, once.ErrInFlight, "in-flight")
		close(g.open)
		d.want(<-done, 1, false, "executed")
		d.wantRuns(1)
	})
}

// A panic and runtime.Goexit go on. The key is left as after a crash.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for name, interrupt := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		for i, opts := range [][]once.Option{nil, {once.WithAtMostOnce()}} {
			b := redistest.Mini(t)
			d, recovered := open(t, b, opts...), make(chan any, 1)
			go func() {
				defer func() { recovered <- recover() }()
				d.do(func(context.Context) (receipt, error) { interrupt(); panic("unreachable") })
				t.Error("it returned")
			}()
			if got := <-recovered; got != map[string]any{"panic": "boom"}[name] {
				t.Errorf("%s: recovered %v", name, got)
			}
			if e := d.event("panicked"); e.Err == nil || strings.Contains(e.Err.Error(), "boom") {
				t.Errorf("%s: the Event's error is %v", name, e.Err)
			}
			d.wantNext(b, "panicked", i == 1)
		}
	}
}
