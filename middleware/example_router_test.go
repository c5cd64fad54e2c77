package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// In chi, With puts the middleware on the routes that have effects, in groups and sub-routers too. Authentication and
// other middlewares for all routes stay in Use. In Use of a whole router this middleware would come before the route is
// known: it would claim keys for 404s and 405s, and for routes that need no protection.
func ExampleIdempotency_chi() {
	locker, server := startLocker()
	defer server.stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithObserver(func(_ context.Context, e middleware.Event) { fmt.Println(e.Outcome) }))

	r := chi.NewRouter()
	r.Route("/orders/{order}", func(r chi.Router) {
		r.Post("/preview", preview) // changes nothing, so it needs no protection
		r.With(once).Post("/payments", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "order %s is paid", chi.URLParam(r, "order"))
		})
	})
	r.Group(func(r chi.Router) {
		changes := r.With(once)
		changes.Post("/refunds", preview)
		changes.Patch("/address", preview)
	})
	for _, path := range []string{"/orders/17/payments", "/orders/17/payments", "/orders/17/preview", "/refunds", "/nowhere"} {
		postTo(r, path)
	}
	// Output:
	// executed
	// 200 order 17 is paid
	// replayed
	// 200 order 17 is paid
	// 200 a preview
	// executed
	// 200 a preview
	// 404 404 page not found
}

func preview(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a preview") }

// postTo sends a request of the user ann with the key k1, and prints the answer.
func postTo(h http.Handler, path string) {
	r := httptest.NewRequest(http.MethodPost, path, nil)
	r.SetBasicAuth("ann", "")
	r.Header.Set("Idempotency-Key", "k1")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
}
