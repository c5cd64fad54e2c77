package middleware_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// After a mismatch the problem and the Event tell whether the first request runs, or when it ended, and nothing else of it.
func TestMismatchTellsOfTheFirst(t *testing.T) {
	other := body("application/json", `{"amount":1}`)
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, opts := range map[string][]middleware.Option{
			"Redis": nil, "too long": {middleware.WithMaxResponse(1)}, "transactional": {middleware.WithJournal(newJournal(false))},
			"intent": {middleware.WithJournal(newJournal(true))},
		} {
			t.Run(name, func(t *testing.T) {
				g := newGate()
				s := serve(t, b, behind(t, g, payOnce()), opts...)
				k := key(`"` + name + `"`)
				before := time.Now().Truncate(time.Millisecond)
				done := s.inBackground(g, k)
				a := s.send(k, other)
				e := s.want(a, http.StatusUnprocessableEntity, middleware.Reused)
				p := problemIn(t, a)
				if !p.FirstRunning || !e.FirstRunning || p.FirstEnded != nil || !e.FirstEnded.IsZero() {
					t.Errorf("while it runs: %s, %+v", a.body, e)
				}
				close(g.open)
				<-done
				s.event()
				for range 2 {
					a = s.send(k, other)
					e = s.want(a, http.StatusUnprocessableEntity, middleware.Reused)
					p = problemIn(t, a)
					isTime := p.FirstEnded != nil && !p.FirstEnded.Before(before) && !p.FirstEnded.After(time.Now()) && p.FirstEnded.Equal(e.FirstEnded)
					if p.FirstRunning || e.FirstRunning || !isTime {
						t.Errorf("after it: %s, %+v", a.body, e)
					}
					if strings.Contains(a.body, "/payments/1") || strings.Contains(a.body, "1250") {
						t.Errorf("it has something of the first: %s", a.body)
					}
					if strings.HasPrefix(name, "in") || strings.HasPrefix(name, "tr") {
						b.FlushAll(t) // now the journal has it alone
					}
				}
				s.wantRuns(1)
			})
		}
	})
}

// Of a first request whose process died it is not known whether it ended.
func TestMismatchWithAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
		middleware.FromContext(r.Context()).Unknown()
		w.WriteHeader(http.StatusBadGateway)
	}, middleware.WithAtMostOnce())
	s.want(s.send(), http.StatusBadGateway, middleware.Unknown)
	b.Elapse(t, 11*time.Second) // the lease
	a := s.send(body("application/json", "{}"))
	e := s.want(a, http.StatusUnprocessableEntity, middleware.Reused)
	if strings.Contains(a.body, "first_") || e.FirstRunning || !e.FirstEnded.IsZero() {
		t.Errorf("got %s, %+v", a.body, e)
	}
}

func problemIn(t *testing.T, a answer) (p middleware.Problem) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	return p
}
