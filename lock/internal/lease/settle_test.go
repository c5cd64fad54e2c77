package lease_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// What a Settle finds, on a lease that is valid and on one that is lost.
func TestSettle(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer  answer
		err     error
		end     error // of the lease, unless it was lost before
		release error // of a Release afterwards
	}{
		"our claim":     {ours, nil, context.Canceled, nil},
		"nothing":       {nobody, nil, context.Canceled, nil},
		"our own value": {ourValue, nil, context.Canceled, nil},
		"another claim": {another, store.ErrLost, store.ErrLost, store.ErrLost},
	} {
		for state, at := range map[string]time.Duration{"valid": 0, "expired": valid + time.Second} {
			t.Run(state+", "+name, in(map[string][]answer{"settle": {test.answer}}, func(w *world) {
				w.at(at)
				wantIs(w.T, "Settle", w.settle("v"), test.err)
				w.wantPhase("ended")
				end := test.end
				if at > 0 {
					end = store.ErrLost
				}
				w.wantErr(end)
				for range 2 {
					wantIs(w.T, "Release", w.release(), test.release)
				}
				w.at(time.Minute)
				if got := strings.Join(w.backend.sent, " "); strings.Count(got, " ") != 1 {
					w.Errorf("sent %q, want one settle", got)
				}
				w.wantStats(lease.BacklogStats{})
			}, withoutRenewal))
		}
	}
}

// A Settle that got no reply goes on until the value is stored.
func TestSettleGoesOn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tries []answer
		end   error
		stats lease.BacklogStats
	}{
		"an error, then our claim":     {[]answer{down, ours}, context.Canceled, lease.BacklogStats{Stored: 1}},
		"no reply, then our value":     {[]answer{lost, ourValue}, context.Canceled, lease.BacklogStats{Stored: 1}},
		"many errors, then our claim":  {[]answer{down, down, down, down, lost, ours}, context.Canceled, lease.BacklogStats{Stored: 1}},
		"an error, then nothing":       {[]answer{down, nobody}, context.Canceled, lease.BacklogStats{Stored: 1}},
		"an error, then another claim": {[]answer{down, another}, store.ErrLost, lease.BacklogStats{GivenUp: 1}},
	} {
		t.Run(name, in(map[string][]answer{"settle": test.tries}, func(w *world) {
			err := w.settle("value")
			wantIs(w.T, "Settle", err, lease.ErrPending)
			wantIs(w.T, "Settle", err, test.tries[0].Err)
			w.wantErr(nil)
			w.wantPhase("active")
			bytes := w.backlog.Stats().Bytes
			w.wantStats(lease.BacklogStats{Pending: 1, Bytes: bytes})
			if head := len(store.NewValue(w.core.ID().Token, time.Now(), 0)); bytes != head+len("value") {
				w.Errorf("%d bytes are pending, want %d", bytes, head+len("value"))
			}
			w.at(time.Minute)
			w.wantErr(test.end)
			w.wantPhase("ended")
			w.wantStats(test.stats)
			sent := len(w.backend.sent)
			if got := w.count("settle"); got != len(test.tries) {
				w.Errorf("%d settles were sent, want %d", got, len(test.tries))
			}
			w.at(time.Hour)
			if got := len(w.backend.sent); got != sent {
				w.Errorf("%d commands were sent after the end", got-sent)
			}
		}))
	}
}

// A late value is stored for what is left of its time, in whole milliseconds, and the lease is kept alive until then.
func TestSettleLate(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"settle": {down}}, func(w *world) {
		wantIs(t, "Settle", settle(w.first, "v", 10*time.Minute), lease.ErrPending)
		w.at(5 * time.Minute)
		w.wantErr(nil)
		if got := w.count("renew"); got < 90 {
			w.Errorf("%d renewals in 5 minutes", got)
		}
		w.answerWith("settle", ours)
		w.at(6 * time.Minute)
		w.wantPhase("ended")
		for i, left := range w.backend.ttls {
			if left > 10*time.Minute || i > 0 && left >= w.backend.ttls[i-1] || left%ms != 0 {
				w.Errorf("try %d: for %v", i+1, left)
			}
			if w.backend.values[i] != "v" {
				w.Errorf("try %d: %q", i+1, w.backend.values[i])
			}
		}
		last := w.backend.ttls[len(w.backend.ttls)-1]
		if last < 4*time.Minute || last > 5*time.Minute {
			w.Errorf("the value was stored for %v", last)
		}
	})
}

// A Settle is given up at the first try after its time is over, or after an hour. The lease runs out then.
func TestSettleEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ keep, end time.Duration }{
		"the value's time is over": {time.Minute, time.Minute},
		"after an hour":            {24 * time.Hour, time.Hour},
		"at once":                  {ms, ms},
	} {
		t.Run(name, in(map[string][]answer{"settle": {down}}, func(w *world) {
			wantIs(w.T, "Settle", settle(w.first, "v", test.keep), lease.ErrPending)
			if test.end > 2*ms {
				w.at(test.end - 2*ms)
				w.wantErr(nil)
			}
			w.at(test.end + time.Second) // the longest pause
			w.wantStats(lease.BacklogStats{GivenUp: 1})
			w.forget()
			w.at(test.end + time.Second + ttl)
			w.wantErr(store.ErrLost)
			w.sent("") // no renewal and no try
			for _, left := range w.backend.ttls {
				if left < ms {
					w.Errorf("a try for %v", left)
				}
			}
			if err := w.close(); err != nil {
				w.Errorf("%v, want only what Close has given up", err)
			}
		}))
	}
}

// A second Settle is refused at once: it sends nothing and does not ask for the value. The first one goes on.
func TestSettleAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answers []answer
		first   error
		end     error
	}{
		"after one that succeeded":         {[]answer{ours}, nil, context.Canceled},
		"after one that was refused":       {[]answer{another}, store.ErrLost, store.ErrLost},
		"while one is pending":             {[]answer{down, down, down, down, ours}, lease.ErrPending, context.Canceled},
		"while one is pending and is lost": {[]answer{lost, another}, lease.ErrPending, store.ErrLost},
	} {
		t.Run(name, in(map[string][]answer{"settle": test.answers}, func(w *world) {
			wantIs(w.T, "Settle", w.settle("v"), test.first)
			wantSettled(w)
			w.at(time.Minute)
			wantSettled(w)
			if got := w.count("settle"); got != len(test.answers) {
				w.Errorf("%d settles were sent, want %d", got, len(test.answers))
			}
			for _, value := range w.backend.values {
				if value != "v" {
					w.Errorf("%q was sent, want v", value)
				}
			}
			w.wantPhase("ended")
			w.wantErr(test.end)
		}))
	}
}

// wantSettled checks that another Settle returns ErrLost at once.
func wantSettled(w *world) {
	w.Helper()
	synctest.Wait() // until the background pauses
	before, sent := time.Now(), w.count("settle")
	err := w.first.Settle(w.Context(), 1, func([]byte) []byte { panic("appendTo was called") }, nil, time.Hour)
	wantIs(w.T, "Settle again", err, store.ErrLost)
	if time.Since(before) != 0 || w.count("settle") != sent {
		w.Error("Settle again was not refused at once")
	}
}

// Release ends a Settle that is pending.
func TestReleaseWhileSettleIsPending(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"settle": {down}}, func(w *world) {
		wantIs(t, "Settle", w.settle("v"), lease.ErrPending)
		w.at(time.Second)
		w.forget()
		wantIs(t, "Release", w.release(), nil)
		synctest.Wait()
		w.wantStats(lease.BacklogStats{Stored: 1}) // at once: it does not have to be stored any more
		w.at(time.Minute)
		w.sent("release 1s")
		w.wantErr(context.Canceled)
		wantIs(t, "Settle", w.settle("v"), store.ErrLost)
	})
}

// A Settle that fails while a Release is in flight does not go on.
func TestSettleBesideRelease(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		settle, release answer
		settled         error
		released        error
		lost            uint64
	}{
		"the Settle fails first":      {slow(100*ms, down), slow(200*ms, ours), errDown, nil, 0},
		"the Settle fails last":       {slow(200*ms, down), slow(100*ms, ours), errDown, nil, 0},
		"the Settle succeeds first":   {slow(100*ms, ours), slow(200*ms, ourValue), nil, nil, 0},
		"the Release finds another":   {slow(100*ms, ours), slow(200*ms, another), nil, nil, 0}, // the value's time was over
		"the Settle succeeds last":    {slow(200*ms, nobody), slow(100*ms, ours), nil, nil, 0},
		"a successor, Settle first":   {slow(100*ms, another), slow(200*ms, ours), store.ErrLost, nil, 0},
		"a successor, Release first":  {slow(200*ms, another), slow(100*ms, ours), store.ErrLost, nil, 0},
		"a successor, Release unsure": {slow(100*ms, another), down, store.ErrLost, errDown, 0},
		"both are refused":            {slow(100*ms, another), slow(200*ms, another), store.ErrLost, store.ErrLost, 1},
		"both get no answer":          {lost, down, context.DeadlineExceeded, errDown, 0},
	} {
		t.Run(name, in(map[string][]answer{"settle": {test.settle}, "release": {test.release, ours}}, func(w *world) {
			settled := w.call(func() error { return w.settle("v") })
			released := w.call(w.release)
			err := settled()
			wantIs(w.T, "Settle", err, test.settled)
			if errors.Is(err, lease.ErrPending) {
				w.Error("the Settle goes on after Release")
			}
			wantIs(w.T, "Release", released(), test.released)
			w.at(time.Minute)
			w.wantErr(context.Canceled)
			w.wantPhase(map[bool]string{true: "releasing", false: "ended"}[test.released == errDown])
			w.wantStats(lease.BacklogStats{})
			w.wantCounts(0, 0, test.lost)
		}))
	}
}

// Close tries each value once more, and says how many were not stored.
func TestCloseSettlesOnceMore(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		last  answer
		err   error
		stats lease.BacklogStats
	}{
		"which succeeds":   {ours, nil, lease.BacklogStats{Stored: 1}},
		"which is refused": {another, lease.ErrGivenUp, lease.BacklogStats{GivenUp: 1}},
		"which fails":      {down, lease.ErrGivenUp, lease.BacklogStats{GivenUp: 1}},
		"without a reply":  {lost, lease.ErrGivenUp, lease.BacklogStats{GivenUp: 1}},
	} {
		t.Run(name, in(map[string][]answer{"settle": {down}}, func(w *world) {
			wantIs(w.T, "Settle", w.settle("v"), lease.ErrPending)
			w.at(10 * time.Minute)
			w.answerWith("settle", test.last)
			w.forget()
			wantIs(w.T, "Close", w.close(), test.err)
			if got := w.count("settle"); got != 1 {
				w.Errorf("%d settles were sent, want one more", got)
			}
			w.wantStats(test.stats)
			wantIs(w.T, "Close again", w.backlog.TakeUnstored(), nil)
		}))
	}
}

// After Close a Settle is tried once, and a value that was not stored is counted.
func TestSettleAfterClose(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"settle": {down, ours}}, func(w *world) {
		wantIs(t, "Close", w.close(), nil)
		err := w.settle("v")
		wantIs(t, "Settle", err, errDown)
		if errors.Is(err, lease.ErrPending) {
			w.Errorf("%v: nothing goes on after Close", err)
		}
		w.at(time.Second)
		w.sent("settle 0s")
		w.wantStats(lease.BacklogStats{GivenUp: 1})
		wantIs(t, "Close again", w.backlog.TakeUnstored(), lease.ErrGivenUp)
		wantIs(t, "Settle again", w.settle("v"), store.ErrLost)
	})
}

func TestSettleAppend(t *testing.T) {
	t.Parallel()
	for name, appendTo := range map[string]func([]byte) []byte{
		"nothing":         func([]byte) []byte { return nil },
		"another slice":   func([]byte) []byte { return []byte("value") },
		"a shorter slice": func(b []byte) []byte { return b[:len(b)-1] },
		"a changed slice": func(b []byte) []byte { b = slices.Clone(b); b[0]++; return b },
	} {
		t.Run(name, in(nil, func(w *world) {
			defer func() {
				if recover() == nil {
					w.Error("Settle has not panicked")
				}
				w.sent("")
				w.wantErr(nil)
			}()
			_ = w.first.Settle(w.Context(), 10, appendTo, nil, time.Hour)
		}))
	}
}
