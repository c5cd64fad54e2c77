package middleware_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// conformance: 24
func TestInFlight(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		g := newGate()
		s := serve(t, b, func(w http.ResponseWriter, r *http.Request) { g.pass(); payOnce()(w, r) })
		done := s.inBackground(g)
		a := s.send()
		s.want(a, http.StatusConflict, middleware.InFlight)
		if got := a.problem(); got != "in-flight" {
			t.Errorf("problem %q, want in-flight", got)
		}
		close(g.open)
		s.want(<-done, http.StatusCreated, middleware.Executed)
		s.want(s.send(), http.StatusCreated, middleware.Replayed)
		s.wantRuns(1)
	})
}

// A client that obeys Retry-After, the age of the run, doubles its pause with every try. A duplicate does not wait if its
// answer is due before.
//
// conformance: 24
func TestRetryAfterIsTheAgeOfTheRun(t *testing.T) {
	t.Parallel()
	const timeAt = 45 // in a claim: behind its head of 20 bytes, a flag, a number of 16 digits, and the hold
	b, g := redistest.Mini(t), newGate()
	s := serve(t, b, behind(t, g, payOnce()), middleware.WithWait(time.Hour))
	s.outer = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			server := &http.Server{WriteTimeout: time.Nanosecond}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, server)))
		})
	}
	done := s.inBackground(g)
	k := b.Keys(t)[0]
	claim := rawOf(t, b, k)
	binary.BigEndian.PutUint64(claim[timeAt:], uint64(time.Now().Add(-time.Hour).UnixMilli()))
	if err := b.Client(t).Set(t.Context(), k, claim, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	a := s.send()
	s.wantRefused(a, http.StatusConflict, middleware.InFlight, "in-flight")
	if got := a.header.Get("Retry-After"); got != "10" {
		t.Errorf("Retry-After %q, want that of a lease", got)
	}
	close(g.open)
	<-done
}

// others are requests with the key of the first one that ask for something else.
var others = map[string][]edit{
	"body":          {body("application/json", `{"amount":1251,"currency":"EUR"}`)},
	"no body":       {body("application/json", "")},
	"query":         {target("/payments?currency=USD")},
	"media type":    {body("text/plain", payment)},
	"no media type": {header("Content-Type", "")},
}

// conformance: 27, 29
func TestKeyReused(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, edits := range others {
			b.FlushAll(t)
			g := newGate()
			s := serve(t, b, func(w http.ResponseWriter, r *http.Request) { g.pass(); payOnce()(w, r) })
			done := s.inBackground(g)
			for _, when := range []string{"in flight", "stored"} {
				a := s.send(edits...)
				s.want(a, http.StatusUnprocessableEntity, middleware.Reused)
				if got := a.problem(); got != "key-reused" {
					t.Errorf("%s, %s: problem %q, want key-reused", name, when, got)
				}
				if when == "in flight" {
					close(g.open)
					s.want(<-done, http.StatusCreated, middleware.Executed)
				}
			}
			s.want(s.send(), http.StatusCreated, middleware.Replayed)
			s.wantRuns(1)
		}
	})
}

// conformance: 29, 32
func TestScopes(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]edit{
		"user":   user("bob"),
		"path":   target("/refunds"),
		"method": method(http.MethodPatch),
		"key":    key("k2"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate()
			b := redistest.Mini(t)
			s := serve(t, b, func(w http.ResponseWriter, r *http.Request) { g.pass(); payOnce()(w, r) })
			ours, theirs := s.inBackground(g), s.inBackground(g, e) // neither meets the other in flight,
			close(g.open)
			s.want(<-ours, http.StatusCreated, middleware.Executed)
			s.want(<-theirs, http.StatusCreated, middleware.Executed)
			s.want(s.send(e, body("application/json", "{}")), http.StatusUnprocessableEntity, middleware.Reused) // nor afterwards
			s.want(s.send(), http.StatusCreated, middleware.Replayed)
			s.wantRuns(2)
			if keys := b.Keys(t); len(keys) != 2 {
				t.Errorf("keys %q, want two", keys)
			}
		})
	}
}

// conformance: 33
func TestReplayComesAfterTodaysAuthorization(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.Mini(t), payOnce())
	allowed := true
	s.outer = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !allowed {
				http.Error(w, "no more", http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	s.want(s.send(), http.StatusCreated, middleware.Executed)
	allowed = false
	if a := s.send(); a.status != http.StatusForbidden || a.replayed() || strings.Contains(a.body, "run") {
		t.Errorf("%+v, want a bare 403", a)
	}
}

// Mounted twice, the inner middleware passes the request on; under another key it does not.
func TestMountedTwice(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	locker := newLocker(t, b.Client(t))
	standard := keyfunc.Standard(keyfunc.BasicUser())
	for name, test := range map[string]struct {
		inner keyfunc.Func
		keys  int
	}{
		"same key":    {standard, 1},
		"another key": {keyfunc.Compose(standard, keyfunc.Anonymous()), 2},
	} {
		t.Run(name, func(t *testing.T) {
			b.FlushAll(t)
			inner := middleware.Idempotency(locker, test.inner)(http.HandlerFunc(echo))
			s := serveKeyed(t, locker, standard, inner.ServeHTTP)
			a := s.send()
			s.want(a, http.StatusOK, middleware.Executed)
			if a.body != payment {
				t.Errorf("body %q, want %q", a.body, payment)
			}
			s.want(s.send(), http.StatusOK, middleware.Replayed)
			if keys := b.Keys(t); len(keys) != test.keys {
				t.Errorf("keys %q, want %d", keys, test.keys)
			}
		})
	}
}

// After a mismatch the problem and the Event tell whether the first request runs, or when it ended, and nothing else of it.
func TestMismatchTellsOfTheFirst(t *testing.T) {
	t.Parallel()
	other := body("application/json", `{"amount":1}`)
	g := newGate()
	s := serve(t, redistest.Mini(t), behind(t, g, payOnce()))
	before := time.Now().Truncate(time.Millisecond)
	done := s.inBackground(g)
	for _, running := range []bool{true, false} {
		a := s.send(other)
		e := s.want(a, http.StatusUnprocessableEntity, middleware.Reused)
		var p middleware.Problem
		if err := json.Unmarshal([]byte(a.body), &p); err != nil {
			t.Fatalf("%s: %v", a.body, err)
		}
		isTime := p.FirstEnded != nil && !p.FirstEnded.Before(before) && !p.FirstEnded.After(time.Now()) && p.FirstEnded.Equal(e.FirstEnded)
		if p.FirstRunning != running || e.FirstRunning != running || isTime == running || strings.Contains(a.body, "amount") {
			t.Errorf("running %t: %s, %+v", running, a.body, e)
		}
		if running {
			close(g.open)
			<-done
			s.event()
		}
	}
}
