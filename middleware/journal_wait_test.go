package middleware_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// A waiter whose run has left no response in Redis gets the one that the journal has.
func TestWaiterIsAnsweredByTheJournal(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, c := range map[string]struct {
			end     func(g *gate) // of the run that is waited for
			without answer        // if the journal has nothing either
			outcome middleware.Outcome
		}{
			"abandoned": {func(g *gate) { close(g.open) }, answer{status: 409}, middleware.OutcomeUnknown},
			"forgotten": {func(*gate) { b.FlushAll(t) }, answer{status: 503}, middleware.NotReplayable},
		} {
			t.Run(name, func(t *testing.T) {
				b.FlushAll(t)
				j, g := newJournal(false), newGate()
				s := serveWaiting(t, b.Client(t), payOnce(), middleware.WithJournal(j))
				first := s.send()
				s.want(first, http.StatusCreated, middleware.Executed)
				for _, known := range []bool{true, false} {
					b.FlushAll(t)
					other := serveWaiting(t, b.Client(t), func(_ http.ResponseWriter, r *http.Request) {
						g.pass()
						middleware.FromContext(r.Context()).Unknown()
					}, middleware.WithAtMostOnce())
					done := other.inBackground(g)
					waiter := s.begin()
					s.awaitWaiting(b, 1)
					if c.end(g); name == "abandoned" {
						<-done
						b.Elapse(t, leaseTTL)
					}
					a := <-waiter
					if known {
						s.want(a, http.StatusCreated, middleware.Replayed)
						if a.body != first.body {
							t.Errorf("replay %+v, want %+v", a, first)
						}
					} else {
						s.want(a, c.without.status, c.outcome)
					}
					if name == "forgotten" {
						close(g.open)
						<-done
					}
					clear(j.rows)
					g.open = make(chan struct{})
				}
				s.wantRuns(1)
			})
		}
	})
}

// A value that Redis has and cannot confirm is not run over: it may be of an instance without the journal.
func TestUnconfirmedBesideTheJournal(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	client := master.Client(t)
	patient := newLocker(t, client, lock.WithReplicas(1, 15*time.Second))
	hasty := newLocker(t, client, lock.WithReplicas(1, 300*time.Millisecond))
	j := newJournal(false)
	without, with := serveOn(t, patient, payOnce()), serveOn(t, patient, payOnce(), middleware.WithJournal(j))
	without.want(without.send(), http.StatusCreated, middleware.Executed)
	first := with.send(key("k2"))
	with.want(first, http.StatusCreated, middleware.Executed)
	replica.Pause(t)
	defer replica.Resume(t)
	s := serveOn(t, hasty, payOnce(), middleware.WithJournal(j))
	a := s.send()
	s.wantRefused(a, http.StatusServiceUnavailable, middleware.StoreUnavailable, "store-unavailable")
	again := s.send(key("k2"))
	s.want(again, http.StatusCreated, middleware.Replayed)
	if again.body != first.body {
		t.Errorf("replay %+v, want %+v", again, first)
	}
	s.wantRuns(0)
}

// A row whose run is within its limit is in flight, also if Redis has forgotten the run or calls it abandoned. A waiter waits
// for its end.
func TestRunningInTheJournal(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		t.Run("abandoned", func(t *testing.T) {
			s, _ := journaled(t, b, newJournal(true), func(_ http.ResponseWriter, r *http.Request) {
				middleware.FromContext(r.Context()).Unknown()
			}, middleware.WithAtMostOnce())
			s.want(s.send(), http.StatusOK, middleware.Unknown)
			b.Elapse(t, leaseTTL)
			s.wantRefused(s.send(), http.StatusConflict, middleware.InFlight, "in-flight")
			s.wantRefused(s.send(body("text/plain", "other")), http.StatusUnprocessableEntity, middleware.Reused, "key-reused")
		})
		t.Run("forgotten", func(t *testing.T) {
			b.FlushAll(t)
			g := newGate()
			s := serveWaiting(t, b.Client(t), func(w http.ResponseWriter, _ *http.Request) {
				g.pass()
				w.WriteHeader(http.StatusCreated)
			}, middleware.WithJournal(newJournal(true)))
			done := s.inBackground(g)
			waiter := s.begin()
			s.awaitWaiting(b, 1)
			b.FlushAll(t)
			close(g.open)
			a, again := <-done, <-waiter
			outcomes := []middleware.Outcome{s.event().Outcome, s.event().Outcome}
			slices.Sort(outcomes)
			if a.status != http.StatusCreated || again.status != http.StatusCreated || again.header.Get("Idempotent-Replayed") != "true" ||
				!slices.Equal(outcomes, []middleware.Outcome{middleware.Executed, middleware.Replayed}) {
				t.Errorf("%+v, and to the waiter %+v, with %v; want 201 and its replay", a, again, outcomes)
			}
			s.wantRuns(1)
		})
	})
}
