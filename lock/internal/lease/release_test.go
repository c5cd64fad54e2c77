package lease_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/lock/internal/lease"
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
		t.Run(name, in(map[string][]answer{"release": {test.answer}}, func(w *world) {
			end := context.Canceled
			if test.lost {
				w.at(valid)
				end = store.ErrLost
			}
			for range 3 {
				wantIs(w.T, "Release", w.release(), test.err)
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
		}, withoutRenewal))
	}
}

func withHold(id *lease.ID) { id.Hold = time.Hour }

// A claim that the first Release has not freed, or that may return, is left to the backend, until it expires unless it has a
// hold. A Release that got no reply has found the lease valid, so that a claim of another that a later one finds is no loss.
func TestReleaseIsLeftToTheBackend(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answers   []answer
		mayReturn bool
		at        time.Duration
		sent      string
		err, then error
	}{
		"confirmed":                    {[]answer{ours}, false, 0, "release 0s", nil, nil},
		"confirmed, it may return":     {[]answer{ours}, true, 0, "release 0s, keep releasing, gone, may return 0s", nil, nil},
		"gone, it may return":          {[]answer{nobody}, true, 0, "release 0s, keep releasing, gone, may return 0s", nil, nil},
		"an error":                     {[]answer{down, ours}, false, 0, "release 0s, keep releasing 0s, release 0s", errDown, nil},
		"an error, and it may return":  {[]answer{down}, true, 0, "release 0s, keep releasing, may return 0s, release 0s", errDown, errDown},
		"an error, then nothing":       {[]answer{down, nobody}, false, 0, "release 0s, keep releasing 0s, release 0s", errDown, nil},
		"an error, then another":       {[]answer{down, another}, false, 0, "release 0s, keep releasing 0s, release 0s", errDown, nil},
		"no reply":                     {[]answer{lost, ours}, false, 0, "release 0s, keep releasing 500ms, release 500ms", context.DeadlineExceeded, nil},
		"no reply, then another":       {[]answer{lost, another}, false, 0, "release 0s, keep releasing 500ms, release 500ms", context.DeadlineExceeded, nil},
		"another claim, it may return": {[]answer{unsureAnother}, true, 0, "release 0s, keep releasing, gone, may return 0s", nil, nil},
		"lost, an error, then another": {[]answer{down, another}, false, valid, "release 8.908s, keep releasing 8.908s, release 8.908s", errDown, store.ErrLost},
	} {
		for _, hold := range []time.Duration{0, time.Hour} {
			t.Run(fmt.Sprint(name, ", hold ", hold), in(map[string][]answer{"release": test.answers}, func(w *world) {
				_, h := w.newLease(w.backend, func(id *lease.ID) { id.Hold, id.MayReturn = hold, test.mayReturn })
				w.at(test.at)
				wantIs(w.T, "Release", h.Release(w.Context()), test.err)
				wantIs(w.T, "Release", h.Release(w.Context()), test.then)
				wantIs(w.T, "Release", h.Release(w.Context()), test.then)
				until := ""
				if hold == 0 {
					until = " until 9s"
				}
				want := strings.ReplaceAll(test.sent, "releasing", "releasing"+until)
				if test.then == errDown {
					want += ", release 0s"
				}
				w.sent(want)
				for _, hasHold := range w.backend.holds {
					if hasHold != (hold > 0) {
						w.Errorf("a release is for a claim with a hold: %t", hasHold)
					}
				}
			}, withoutRenewal))
		}
	}
}

// The claim may have been extended even if the reply does not say so.
func TestReleaseAfterAnExtend(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"extend 1m0s": {down}, "release": {down}}, func(w *world) {
		wantIs(t, "Extend", w.first.Extend(w.Context(), time.Minute), errDown)
		wantIs(t, "Release", w.release(), errDown)
		w.sent("extend 1m0s 0s, release 0s, keep releasing until 1m0.5s 0s")
	}, withoutRenewal)
}

func TestReleaseInBackground(t *testing.T) {
	t.Parallel()
	run(t, map[string][]answer{"release": {slow(time.Second, ours)}}, func(w *world) {
		w.first.ReleaseInBackground(context.Background())
		w.at(time.Second)
		w.sent("release 0s")
		w.wantPhase("ended")
	}, withoutRenewal)
}

// fault: first try of a claim lost, second granted, lease settled. Expected: the first is released if it arrives when the
// value has expired, also if another has the key at the Settle.
func TestSettleOfAClaimThatMayReturn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		answers   []answer
		mayReturn bool
		want      error
		sent      string
	}{
		{[]answer{ours}, false, nil, "settle 0s"},
		{[]answer{ours}, true, nil, "settle 0s, keep releasing, gone, may return 0s"},
		{[]answer{another}, true, store.ErrLost, "settle 0s, keep releasing, gone, may return 0s"},
	} {
		run(t, map[string][]answer{"settle": test.answers}, func(w *world) {
			_, h := w.newLease(w.backend, withHold, func(id *lease.ID) { id.MayReturn = test.mayReturn })
			wantIs(t, "Settle", settle(h, "v", time.Hour), test.want)
			wantIs(t, "Release", h.Release(w.Context()), test.want)
			w.sent(test.sent)
		}, withoutRenewal)
	}
}
