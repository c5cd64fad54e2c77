package middleware_test

import (
	"net/http"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// payInTx answers 201, and another body at each run, in a transaction. If that fails it answers 500 with the error.
func payInTx(j *memJournal) http.HandlerFunc {
	pay := payOnce()
	return func(w http.ResponseWriter, r *http.Request) {
		if err := j.inTx(r.Context(), func() error { pay(w, r); return nil }); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}

// journaled starts a site with the journal, whose Redis is asked through a proxy.
func journaled(t *testing.T, b redistest.Backend, j *memJournal, h http.HandlerFunc, opts ...middleware.Option) (*site, *redistest.Proxy) {
	t.Helper()
	b.FlushAll(t)
	proxy := redistest.NewProxy(t, b.Addr())
	return serveOn(t, newLocker(t, proxy.Client(t)), h, append(opts, middleware.WithJournal(j))...), proxy
}

// A run under a journal goes on when Redis forgets it, and what it commits stands.
func TestRedisForgetsUnderARun(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
				b.FlushAll(t)
				if r.Context().Err() != nil {
					t.Error("the run has ended")
				}
				payInTx(j)(w, r)
			})
			first := s.send()
			s.want(first, http.StatusCreated, middleware.Executed)
			again := s.send()
			s.want(again, http.StatusCreated, middleware.Replayed)
			s.wantRuns(1)
			j.want(t, 1, 1)
		})
	})
}

// Without Redis the journal alone decides, and Redis is asked once a second at most.
func TestJournalWithoutRedis(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			g := newGate()
			s, proxy := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery == "slow" {
					g.pass()
				}
				payInTx(j)(w, r)
			})
			proxy.CutBefore(redistest.Any())
			for _, want := range []middleware.Outcome{middleware.Executed, middleware.Replayed} {
				if e := s.want(s.send(), http.StatusCreated, want); e.Err == nil {
					t.Errorf("%s: the event does not say that Redis did not answer", want)
				}
			}
			s.want(s.send(body("text/plain", "other")), http.StatusUnprocessableEntity, middleware.Reused)
			slow := []edit{key("slow"), target("/payments?slow")}
			done := s.inBackground(g, slow...)
			if j.intent {
				s.want(s.send(slow...), http.StatusConflict, middleware.InFlight)
				s.want(s.send(append(slow, body("text/plain", "other"))...), http.StatusUnprocessableEntity, middleware.Reused)
				close(g.open)
				s.want(<-done, http.StatusCreated, middleware.Executed)
				j.want(t, 2, 2)
				return
			}
			second := s.inBackground(g, slow...) // nothing tells it from the first
			close(g.open)
			a, other := <-done, <-second
			if a.status != http.StatusCreated || other.body != a.body || a.replayed() == other.replayed() {
				t.Errorf("got %+v and %+v, want one response and its replay", a, other)
			}
			j.want(t, 2, 2)
		})
	})
}

// With both options Redis is needed, too: its holds are for the instances that have no journal yet.
func TestJournalBesideAtMostOnce(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		j := newJournal(false)
		s, proxy := journaled(t, b, j, payInTx(j), middleware.WithAtMostOnce())
		s.want(s.send(), http.StatusCreated, middleware.Executed)
		b.FlushAll(t)
		s.want(s.send(), http.StatusCreated, middleware.Replayed)
		proxy.CutBefore(redistest.Any())
		s.want(s.send(key("k2")), http.StatusServiceUnavailable, middleware.StoreUnavailable)
		s.wantRuns(1)
		j.want(t, 1, 1)
	})
}

// fault: an instance with the journal and WithAtMostOnce dies before the journal has its outcome, or a sweep frees its row.
// Expected: the hold in Redis does not keep the key, since the journal has no row. A retry runs, and one that only waits
// is told that it may. The hold of an instance without the journal is kept.
func TestNoRowBesideAtMostOnce(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		modes(t, func(t *testing.T, j *memJournal) {
			dies, pay := true, payInTx(j)
			s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
				if dies {
					middleware.FromContext(r.Context()).Unknown()
					return
				}
				pay(w, r)
			}, middleware.WithAtMostOnce())
			s.want(s.send(), http.StatusOK, middleware.Unknown)
			if j.intent {
				b.Elapse(t, leaseTTL)
				s.want(s.send(), http.StatusConflict, middleware.InFlight) // its row
				j.mu.Lock()
				clear(j.rows) // as a sweep does
				j.mu.Unlock()
			} else {
				s.want(s.send(), http.StatusConflict, middleware.InFlight) // its lease
				b.Elapse(t, leaseTTL)
			}
			dies = false
			s.want(s.send(body("text/plain", "another")), http.StatusUnprocessableEntity, middleware.Reused)
			s.want(s.send(), http.StatusCreated, middleware.Executed)
			s.want(s.send(), http.StatusCreated, middleware.Replayed)
			s.wantRuns(2)
			j.want(t, 1, 1)

			old := serve(t, b, func(_ http.ResponseWriter, r *http.Request) {
				middleware.FromContext(r.Context()).Unknown()
			}, middleware.WithAtMostOnce())
			old.want(old.send(key("old")), http.StatusOK, middleware.Unknown)
			b.Elapse(t, leaseTTL)
			s.want(s.send(key("old")), http.StatusConflict, middleware.OutcomeUnknown)
		})
	})
}
