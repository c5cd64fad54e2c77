package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// With knows the route. Use of a whole chi router does not: it claims a key for what no route takes.
func TestChiWithAndUse(t *testing.T) {
	for name, test := range map[string]struct {
		mount   func(r chi.Router, once func(http.Handler) http.Handler)
		nowhere int // Events of a 404
	}{
		"With": {func(r chi.Router, once func(http.Handler) http.Handler) {
			r.With(once).Post("/orders/{order}", payOnce())
		}, 0},
		"Use": {func(r chi.Router, once func(http.Handler) http.Handler) {
			r.Use(once)
			r.Post("/orders/{order}", payOnce())
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			events := make(chan middleware.Event, 10)
			once := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), keyfunc.Standard(keyfunc.Anonymous()),
				middleware.WithObserver(func(_ context.Context, e middleware.Event) { events <- e }))
			r := chi.NewRouter()
			test.mount(r, once)
			post := func(path string) {
				req := httptest.NewRequest(http.MethodPost, path, nil)
				req.Header.Set("Idempotency-Key", "k")
				r.ServeHTTP(httptest.NewRecorder(), req)
			}
			post("/nowhere")
			if n := len(events); n != test.nowhere {
				t.Errorf("%d events of a 404, want %d", n, test.nowhere)
			}
			for range test.nowhere {
				<-events
			}
			post("/orders/17")
			post("/orders/17")
			const pattern = "/orders/{order}"
			if e := <-events; e.Outcome != middleware.Executed || name == "With" && e.Pattern != pattern {
				t.Errorf("%s of %q, want executed", e.Outcome, e.Pattern)
			}
			if e := <-events; e.Outcome != middleware.Replayed || (e.Pattern == pattern) != (name == "With") {
				t.Errorf("%s of %q: a replay has the pattern with With only", e.Outcome, e.Pattern)
			}
		})
	}
}
