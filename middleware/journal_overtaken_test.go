package middleware_test

import (
	"net/http"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// A run that took place is not told that another request has used its key: its client would send it again under a new one.
func TestOvertakenByAnotherRequest(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		j, g := newJournal(false), newGate()
		s, _ := journaled(t, b, j, func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength == int64(len(payment)) {
				g.pass()
			}
			_ = created(w)
		})
		done := s.inBackground(g)
		b.FlushAll(t)
		s.want(s.send(body("text/plain", "other")), http.StatusCreated, middleware.Executed)
		close(g.open)
		a := <-done
		s.want(a, http.StatusConflict, middleware.LeaseLost)
		if a.problem() != "outcome-unknown" {
			t.Errorf("problem %q, want outcome-unknown", a.problem())
		}
	})
}

// The same applies to a run whose row a sweep has freed: there is nothing that would be unreadable.
func TestRowIsRemovedDuringTheRun(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		j := newJournal(true)
		s, _ := journaled(t, b, j, func(w http.ResponseWriter, _ *http.Request) {
			j.mu.Lock()
			clear(j.rows)
			j.mu.Unlock()
			_ = created(w)
		})
		a := s.send()
		s.want(a, http.StatusConflict, middleware.LeaseLost)
		if a.problem() != "outcome-unknown" {
			t.Errorf("problem %q, want outcome-unknown", a.problem())
		}
	})
}
