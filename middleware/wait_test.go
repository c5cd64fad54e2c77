package middleware_test

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// How a duplicate waits, and what ends its wait, is in internal/run.

// Two processes wait for a run on the first of them. On each one waiter disconnects, whose look-ups serve all.
//
// conformance: 26
func TestWaitersGetTheOneResponse(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		const staying = 10 // on each site
		g := newGate()
		h := behind(t, g, payOnce())
		sites := [2]*site{serveWaiting(t, b.Client(t), h), serveWaiting(t, b.Client(t), h)}
		first := sites[0].inBackground(g)
		ctx, leave := context.WithCancel(t.Context())
		var answers []<-chan answer
		for i, s := range sites {
			gone := s.begin(func(r *http.Request) { *r = *r.WithContext(ctx) })
			s.awaitWaiting(b, int64(i)+1)
			defer func() { <-gone }()
			for range staying {
				answers = append(answers, s.begin())
			}
			eventually(t, "all to wait", func() bool { return s.locker.Stats().Waiters == staying+1 })
		}
		leave()
		for _, s := range sites { // at once: the first one still runs
			s.wantEvents(middleware.InFlight)
		}
		close(g.open)
		want := <-first
		if want.status != http.StatusCreated || want.replayed() {
			t.Errorf("the first one got %+v, want 201 and no replay", want)
		}
		for _, answers := range answers {
			if a := <-answers; a.status != want.status || a.body != want.body || !a.replayed() {
				t.Errorf("a waiter got %+v, want a replay of %+v", a, want)
			}
		}
		replays := slices.Repeat([]middleware.Outcome{middleware.Replayed}, staying)
		sites[0].wantEvents(append([]middleware.Outcome{middleware.Executed}, replays...)...)
		sites[1].wantEvents(replays...)
		sites[0].wantRuns(1)
		sites[1].wantRuns(0)
	})
}

// The first run ends without leaving a response. No waiter runs in its place; a retry does.
//
// conformance: 26
func TestRunFails(t *testing.T) {
	for name, test := range map[string]struct {
		end   http.HandlerFunc
		lapse bool // the lease has to run out
		first middleware.Outcome
	}{
		"not to be stored": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, false, middleware.Freed},
		"panic":            {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true, middleware.Panicked},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				g := newGate()
				first, s := serveWaiting(t, b.Client(t), behind(t, g, test.end)), serveWaiting(t, b.Client(t), payOnce())
				done := first.begin(noRetry)
				<-g.entered
				waiting := s.begin()
				s.awaitWaiting(b, 1)
				close(g.open)
				<-done
				first.wantEvents(test.first)
				if test.lapse {
					b.Elapse(t, leaseTTL)
				}
				a := <-waiting
				s.wantRefused(a, http.StatusServiceUnavailable, middleware.NotReplayable, "run-failed")
				s.wantRuns(0)
				s.want(s.send(), http.StatusCreated, middleware.Executed)
			})
		})
	}
}
