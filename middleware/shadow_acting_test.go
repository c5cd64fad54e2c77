package middleware_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// In shadow the Events have the outcomes and statuses that the middleware would have had, acting.
func TestShadowOutcomesAreThoseOfActing(t *testing.T) {
	t.Parallel()
	cookie := func(w http.ResponseWriter) { http.SetCookie(w, &http.Cookie{Name: "session", Value: "s"}) }
	for name, handle := range map[string]http.HandlerFunc{
		"a cookie": func(w http.ResponseWriter, _ *http.Request) {
			cookie(w)
			w.WriteHeader(201)
		},
		"a cookie, nothing written": func(w http.ResponseWriter, _ *http.Request) { cookie(w) },
		"a cookie, and 404": func(w http.ResponseWriter, _ *http.Request) {
			cookie(w)
			w.WriteHeader(404)
		},
		"a cookie after the status": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			cookie(w)
		},
		"a cookie as a trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "Set-Cookie")
			w.WriteHeader(201)
			_, _ = io.WriteString(w, "x")
			cookie(w)
		},
		"a cookie as a trailer by prefix": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			w.Header().Set(http.TrailerPrefix+"Set-Cookie", "a=b")
		},
		"a cookie instead of the outer one": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Del("Set-Cookie")
			cookie(w)
			w.WriteHeader(201)
		},
		"the outer cookie is removed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Del("Set-Cookie")
			w.WriteHeader(201)
		},
		"a cookie, flushed": func(w http.ResponseWriter, _ *http.Request) {
			cookie(w)
			_ = http.NewResponseController(w).Flush()
		},
		"a cookie, and Discard": func(w http.ResponseWriter, r *http.Request) {
			cookie(w)
			_ = middleware.FromContext(r.Context()).Discard()
			w.WriteHeader(201)
		},
		"a cookie, Keep and 503": func(w http.ResponseWriter, r *http.Request) {
			cookie(w)
			middleware.FromContext(r.Context()).Keep()
			w.WriteHeader(503)
		},
		"a length, nothing written": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "3") },
		"nothing":                   func(http.ResponseWriter, *http.Request) {},
		"401":                       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) },
		"500":                       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
	} {
		for optionName, opts := range map[string][]middleware.Option{
			"default": nil, "cookies": {middleware.WithCookies()}, "at most once": {middleware.WithAtMostOnce()},
		} {
			t.Run(name+", "+optionName, func(t *testing.T) {
				t.Parallel()
				acting, watching := outcomes(t, handle, opts...), outcomes(t, handle, append(opts, middleware.WithShadow())...)
				for i := range acting {
					if acting[i].Outcome != watching[i].Outcome || acting[i].Status != watching[i].Status {
						t.Errorf("request %d: %s, %d; in shadow %s, %d", i+1,
							acting[i].Outcome, acting[i].Status, watching[i].Outcome, watching[i].Status)
					}
				}
			})
		}
	}
}

// outcomes returns the Events of two equal requests, under an outer middleware that sets a cookie.
func outcomes(t *testing.T, handle http.HandlerFunc, opts ...middleware.Option) (events []middleware.Event) {
	t.Helper()
	opts = append(opts, middleware.WithObserver(func(_ context.Context, e middleware.Event) { events = append(events, e) }))
	handler := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), keyfunc.Header("Idempotency-Key"), opts...)(handle)
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Idempotency-Key", "k1")
		w := httptest.NewRecorder()
		http.SetCookie(w, &http.Cookie{Name: "outer", Value: "o"})
		handler.ServeHTTP(w, r)
	}
	if len(events) != 2 {
		t.Fatalf("%d events", len(events))
	}
	return events
}
