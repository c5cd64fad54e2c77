package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// phases returns the names of an Event's phases that happened, in the order of the fields. It checks that they stand in
// the order of time, within the time given, and do not overlap.
func phases(t *testing.T, e middleware.Event, from time.Time) string {
	t.Helper()
	var names []string
	last := from
	for _, p := range []struct {
		name string
		middleware.Phase
	}{
		{"claim", e.Claim}, {"wait", e.Wait}, {"journal", e.Journal}, {"handler", e.Handler}, {"settle", e.Settle},
	} {
		switch {
		case p.Start.IsZero() && p.Duration == 0:
			continue
		case p.Start.Before(last) || p.Duration <= 0:
			t.Errorf("%s began %v after the phase before it, and took %v", p.name, p.Start.Sub(last), p.Duration)
		}
		names, last = append(names, p.name), p.Start.Add(p.Duration)
	}
	if time.Now().Before(last) {
		t.Errorf("the phases end in the future: %v", last)
	}
	return strings.Join(names, " ")
}

func TestEventPhases(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, test := range map[string]struct {
			opts          []middleware.Option
			handler       http.HandlerFunc
			first, replay string
		}{
			"default":      {nil, payOnce(), "claim handler settle", "claim"},
			"at most once": {[]middleware.Option{middleware.WithAtMostOnce()}, payOnce(), "claim handler settle", "claim"},
			"journal": {
				[]middleware.Option{middleware.WithJournal(newJournal(true))}, payOnce(), "claim journal handler settle", "claim",
			},
			"hold and journal": {
				[]middleware.Option{middleware.WithAtMostOnce(), middleware.WithJournal(newJournal(true))}, payOnce(),
				"claim journal handler settle", "claim",
			},
			"unknown": {
				[]middleware.Option{middleware.WithAtMostOnce()},
				func(_ http.ResponseWriter, r *http.Request) { middleware.FromContext(r.Context()).Unknown() }, "claim handler", "claim",
			},
			"freed": {
				nil, func(_ http.ResponseWriter, r *http.Request) { _ = middleware.FromContext(r.Context()).Discard() },
				"claim handler settle", "claim handler settle",
			},
		} {
			s := serve(t, b, test.handler, test.opts...)
			for _, want := range []string{test.first, test.replay} {
				from := time.Now()
				s.send(key(`"` + name + `"`))
				e := s.event()
				if got := phases(t, e, from); got != want {
					t.Errorf("%s: %s: %s, want %s", name, e.Outcome, got, want)
				}
				if e.Method != http.MethodPost {
					t.Errorf("%s: method %q", name, e.Method)
				}
			}
		}
		s := serve(t, b, payOnce())
		from := time.Now()
		s.send(noKey)
		if got := phases(t, s.event(), from); got != "handler" {
			t.Errorf("unprotected: %s", got)
		}
	})
}

// Size is the length of the middleware's part of the value in Redis, and Age what has passed since.
func TestEventSizeAndAge(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, opts := range forms() {
			s := serve(t, b, payOnce(), opts...)
			before := time.Now().Truncate(time.Millisecond)
			first := s.want(s.send(key(`"`+name+`"`)), http.StatusCreated, middleware.Executed)
			again := s.want(s.send(key(`"`+name+`"`)), http.StatusCreated, middleware.Replayed)
			if stored := len(rawOf(t, b, first.Key)[recordAt:]); first.Size != stored || again.Size != stored {
				t.Errorf("%s: sizes %d and %d, want %d", name, first.Size, again.Size, stored)
			}
			if first.Age != 0 || again.Age <= 0 || again.Age > time.Since(before) {
				t.Errorf("%s: ages %v and %v, want none, and up to %v", name, first.Age, again.Age, time.Since(before))
			}
			e := s.want(s.send(key(`"`+name+`"`), body("application/json", "{}")), http.StatusUnprocessableEntity, middleware.Reused)
			if e.Size != 0 || e.Age != 0 {
				t.Errorf("%s: size %d and age %v of a refusal", name, e.Size, e.Age)
			}
		}
		s := serve(t, b, func(_ http.ResponseWriter, r *http.Request) { _ = middleware.FromContext(r.Context()).Discard() })
		if e := s.want(s.send(), http.StatusOK, middleware.Freed); e.Size != 0 {
			t.Errorf("size %d, although nothing is stored", e.Size)
		}
	})
}

// A route-level middleware knows the pattern at once, one around a mux only once that has run.
func TestEventPattern(t *testing.T) {
	t.Parallel()
	const path = "/payments/7"
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	ofSubRouter := subRouterPattern(path)
	type middlewares = func(http.Handler) http.Handler
	for name, test := range map[string]struct {
		mount         func(once middlewares) http.Handler
		first, replay string
	}{
		"ServeMux, one route": {func(once middlewares) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /payments/{id}", once(ok))
			return mux
		}, "POST /payments/{id}", "POST /payments/{id}"},
		"ServeMux, all": {func(once middlewares) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /payments/{id}", ok)
			return once(mux)
		}, "POST /payments/{id}", ""},
		"chi, With": {func(once middlewares) http.Handler {
			r := chi.NewRouter()
			r.With(once).Post("/payments/{id}", ok)
			return r
		}, "/payments/{id}", "/payments/{id}"},
		"chi, Use": {func(once middlewares) http.Handler {
			r := chi.NewRouter()
			r.Use(once)
			r.Post("/payments/{id}", ok)
			return r
		}, "/payments/{id}", ""},
		"chi, sub-router": {func(once middlewares) http.Handler {
			r := chi.NewRouter()
			r.Route("/payments", func(r chi.Router) { r.With(once).Post("/{id}", ok) })
			return r
		}, ofSubRouter, ofSubRouter},
		"none": {func(once middlewares) http.Handler { return once(ok) }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var events []middleware.Event
			h := test.mount(middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), fixedKey,
				middleware.WithObserver(func(_ context.Context, e middleware.Event) { events = append(events, e) })))
			for range 2 {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, nil))
			}
			if len(events) != 2 || events[0].Pattern != test.first || events[1].Pattern != test.replay ||
				events[1].Outcome != middleware.Replayed {
				t.Errorf("%+v, want the patterns %q and %q", events, test.first, test.replay)
			}
		})
	}
}

// subRouterPattern returns what a handler in a sub-router of chi finds in its request: older versions have only the
// sub-router's own part.
func subRouterPattern(path string) (pattern string) {
	r := chi.NewRouter()
	r.Route("/payments", func(r chi.Router) {
		r.Post("/{id}", func(_ http.ResponseWriter, r *http.Request) { pattern = r.Pattern })
	})
	r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, nil))
	return pattern
}

// A log and a library's metrics need not know of each other.
func TestObservers(t *testing.T) {
	t.Parallel()
	var called []string
	h := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), fixedKey,
		middleware.WithObserver(func(_ context.Context, e middleware.Event) { called = append(called, "first "+string(e.Outcome)) }),
		middleware.WithObserver(func(_ context.Context, e middleware.Event) { called = append(called, "second "+string(e.Outcome)) }),
	)(payOnce())
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
	if got := strings.Join(called, ", "); got != "first executed, second executed" {
		t.Errorf("called: %s", got)
	}
}

const someTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func traced(traceparent string) middleware.Option {
	return middleware.WithTraceparent(func(context.Context) string { return traceparent })
}

// Every form of a record has the trace of its run, and a replay tells it.
func TestTraceparent(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, opts := range forms() {
			s := serve(t, b, payOnce(), append(opts, traced(someTrace))...)
			first := s.want(s.send(key(`"`+name+`"`)), http.StatusCreated, middleware.Executed)
			again := s.want(s.send(key(`"`+name+`"`)), http.StatusCreated, middleware.Replayed)
			if first.Traceparent != "" || again.Traceparent != someTrace {
				t.Errorf("%s: %q and %q, want %q of the replay", name, first.Traceparent, again.Traceparent, someTrace)
			}
		}
		// An instance without the option reads such a record, and tells it too: its observer may want it.
		s := serve(t, b, payOnce(), traced(someTrace))
		s.want(s.send(), http.StatusCreated, middleware.Executed)
		other := serve(t, b, payOnce())
		if e := other.want(other.send(), http.StatusCreated, middleware.Replayed); e.Traceparent != someTrace {
			t.Errorf("%q, want %q", e.Traceparent, someTrace)
		}
	})
}

// The tombstone of an unknown outcome says so in every form, with and without a trace.
func TestUnknownNotStored(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, opts := range forms() {
			for suffix, trace := range map[string]string{"": "", ", traced": someTrace} {
				s := serve(t, b, func(w http.ResponseWriter, _ *http.Request) {
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				}, append(opts, traced(trace))...)
				theirs := key(`"` + name + suffix + `"`)
				_, _ = s.try(s.request(theirs, noRetry)) // its connection breaks
				if e := s.event(); e.Outcome != middleware.Panicked {
					t.Errorf("%s%s: %+v, want panicked", name, suffix, e)
				}
				a := s.send(theirs)
				if e := s.want(a, http.StatusConflict, middleware.OutcomeUnknown); e.Err == nil {
					t.Error("the Event has no error")
				}
				wantUnknownNotStored(t, a)
				a = s.send(theirs, func(r *http.Request) { r.Header.Set("Accept", "text/html") })
				s.want(a, http.StatusConflict, middleware.OutcomeUnknown)
				if !strings.Contains(a.body, "<h1>We do not know whether this has worked</h1>") {
					t.Errorf("%s%s: the page is %s", name, suffix, a.body)
				}
			}
		}
	})
}

// The function gets the context of the request, once for a run, and not for what is not stored.
func TestTraceparentIsAskedOnce(t *testing.T) {
	t.Parallel()
	type name struct{}
	asked := make(chan any, 10)
	s := serve(t, redistest.Mini(t), payOnce(), middleware.WithTraceparent(func(ctx context.Context) string {
		asked <- ctx.Value(name{})
		return someTrace
	}))
	s.outer = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), name{}, "outer")))
		})
	}
	s.want(s.send(), http.StatusCreated, middleware.Executed)
	s.want(s.send(), http.StatusCreated, middleware.Replayed)
	if len(asked) != 1 || <-asked != "outer" {
		t.Errorf("asked %d times more, or with another context", len(asked))
	}
}
