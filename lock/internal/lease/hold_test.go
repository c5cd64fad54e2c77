package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/store"
)

func withHold(id *lease.ID) { id.Hold = time.Hour }

// The release of a claim under a hold is kept up by the backend if it is not confirmed, or if the claim may return. Only
// the first Release does that.
func TestReleaseUnderAHold(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answers   []answer
		mayReturn bool
		sent      string
		err       error
	}{
		"confirmed":                      {[]answer{ours}, false, "release 0s", nil},
		"confirmed, it may return":       {[]answer{ours}, true, "release 0s, keep releasing, gone, may return 0s", nil},
		"gone, it may return":            {[]answer{nobody}, true, "release 0s, keep releasing, gone, may return 0s", nil},
		"an error":                       {[]answer{down, ours}, false, "release 0s, keep releasing 0s, release 0s", errDown},
		"an error, and it may return":    {[]answer{down}, true, "release 0s, keep releasing, may return 0s, release 0s", errDown},
		"no reply":                       {[]answer{lost, ours}, false, "release 0s, keep releasing 500ms, release 500ms", context.DeadlineExceeded},
		"another claim, it may return":   {[]answer{unsureAnother}, true, "release 0s, keep releasing, gone, may return 0s", nil},
		"another claim":                  {[]answer{unsureAnother}, false, "release 0s", nil},
		"our own value, it may not come": {[]answer{ourValue}, false, "release 0s", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, map[string][]answer{"release": test.answers}, func(w *world) {
				_, h := w.newLease(w.backend, withHold, func(id *lease.ID) { id.MayReturn = test.mayReturn })
				wantIs(t, "Release", h.Release(w.Context()), test.err)
				_ = h.Release(w.Context())
				time.Sleep(2 * time.Hour)
				w.sent(test.sent)
				for _, hasHold := range w.backend.holds {
					if !hasHold {
						w.Error("a release is for a claim without a hold")
					}
				}
			}, withoutRenewal)
		})
	}
}

// The same without a hold: an unconfirmed release is retried here, and what may return is left to the backend.
func TestReleaseOfAClaimThatMayReturn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		answers   []answer
		mayReturn bool
		releases  int
		kept      int
	}{
		{[]answer{ours}, false, 1, 0},
		{[]answer{ours}, true, 1, 1},
		{[]answer{down, ours}, false, 2, 0},
		{[]answer{down, ours}, true, 2, 1},
	} {
		run(t, map[string][]answer{"release": test.answers}, func(w *world) {
			_, h := w.newLease(w.backend, func(id *lease.ID) { id.MayReturn = test.mayReturn })
			_ = h.Release(w.Context())
			time.Sleep(time.Second)
			releases, kept := w.count("release"), w.count("keep releasing, gone, may return")
			if releases != test.releases || kept != test.kept {
				w.Errorf("%v: %d releases, %d kept up; want %d, %d", test, releases, kept, test.releases, test.kept)
			}
		}, withoutRenewal)
	}
}

// fault: first try of a claim lost, second granted, lease settled. Expected: the first is released if it arrives when the
// value has expired, also if another has the key at the Settle.
func TestSettleUnderAHold(t *testing.T) {
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
