package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/lock/internal/store"
)

// What the first Release finds decides what each Release returns.
func TestRelease(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer answer
		lost   bool // the lease has run out before
		err    error
	}{
		"our claim":                           {ours, false, nil},
		"nothing":                             {nobody, false, nil},
		"our own value":                       {ourValue, false, nil},
		"another claim":                       {another, false, store.ErrLost},
		"another claim after a lost reply":    {unsureAnother, false, nil},
		"lost, our claim":                     {ours, true, nil},
		"lost, nothing":                       {nobody, true, nil},
		"lost, another claim":                 {another, true, store.ErrLost},
		"lost, another, after no first reply": {unsureAnother, true, store.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, map[string][]answer{"release": {test.answer}}, func(w *world) {
				end := context.Canceled
				if test.lost {
					w.at(valid)
					end = store.ErrLost
				}
				for range 3 {
					wantIs(t, "Release", w.release(), test.err)
				}
				if n := w.count("release"); n != 1 {
					w.Errorf("%d releases were sent, want 1", n)
				}
				w.wantErr(end)
				w.wantPhase("ended")
				lost := uint64(0)
				if test.lost || test.err != nil {
					lost = 1
				}
				w.wantCounts(0, 0, lost)
				w.at(time.Minute)
				if n := len(w.backend.sent); n != 1 {
					w.Errorf("%d commands were sent, want 1", n)
				}
				if w.backend.holds[0] {
					w.Error("the release is for a claim with a hold")
				}
			}, withoutRenewal)
		})
	}
}

// A Release that got no reply is retried in the background. It found the lease valid, so that a claim of another that a
// later try finds is no loss.
func TestReleaseGoesOn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		first, last answer
		lost        bool
		err, then   error
	}{
		"an error, then our claim":           {down, ours, false, errDown, nil},
		"an error, then nothing":             {down, nobody, false, errDown, nil},
		"an error, then another claim":       {down, another, false, errDown, nil},
		"no reply, then another claim":       {lost, another, false, context.DeadlineExceeded, nil},
		"lost, an error, then another claim": {down, another, true, errDown, store.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, map[string][]answer{"release": {test.first, test.last}}, func(w *world) {
				if test.lost { // 8.908 s: the claim may last to 9 s, and that is worth a try
					w.at(valid)
				}
				wantIs(t, "Release", w.release(), test.err)
				w.wantPhase("releasing")
				time.Sleep(50 * ms)
				synctest.Wait()
				w.wantPhase("ended")
				if n := w.count("release"); n != 2 {
					w.Errorf("%d releases were sent, want 2", n)
				}
				wantIs(t, "Release", w.release(), test.then)
				if n := w.count("release"); n != 2 {
					w.Errorf("%d releases were sent, want 2", n)
				}
			}, withoutRenewal)
		})
	}
}

// A Release is tried for as long as the key may stay taken, and for an hour at the most.
func TestReleaseIsTriedFor(t *testing.T) {
	t.Parallel()
	const slack = 1100 * ms // the longest pause, and a bit
	for name, test := range map[string]struct {
		before   func(w *world)
		from, to time.Duration // the last try
	}{
		"the lease":             {func(*world) {}, ttl - slack, ttl + slack},
		"the lease, extended":   {func(w *world) { _ = w.first.Extend(w.Context(), time.Minute) }, time.Minute - slack, time.Minute + opTimeout + slack},
		"an Extend of no reply": {func(w *world) { w.answerWith("extend 1m0s", down); _ = w.first.Extend(w.Context(), time.Minute) }, time.Minute - slack, time.Minute + opTimeout + slack},
		"a lease of a day":      {func(w *world) { _ = w.first.Extend(w.Context(), 24*time.Hour) }, time.Hour - slack, time.Hour + slack},
		"a lease that is over":  {func(w *world) { w.at(time.Minute) }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, map[string][]answer{"release": {down}}, func(w *world) {
				test.before(w)
				begin := time.Now()
				var last time.Time
				w.backend.onSend = func(string) { last = time.Now() }
				wantIs(t, "Release", w.release(), errDown)
				time.Sleep(48 * time.Hour)
				synctest.Wait()
				if got := last.Sub(begin); got < test.from || got > test.to {
					w.Errorf("the last try was after %v, want from %v to %v", got, test.from, test.to)
				}
				w.wantPhase("releasing")
				w.wantErr(map[bool]error{true: store.ErrLost, false: context.Canceled}[test.to == 0])
			}, withoutRenewal)
		})
	}
}

func TestOnlyOneReleaseGoesOn(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"release": {down}}, func(w *world) {
		for range 5 {
			wantIs(t, "Release", w.release(), errDown)
		}
		w.forget()
		w.at(5 * time.Second)
		if got := w.count("release"); got > 15 {
			w.Errorf("%d releases were sent in 5 s: more than one goes on", got)
		}
	})
}
