package main

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// requestTimeout is how long a request may take. It is above maxDelay, and below the server's WriteTimeout: whatever
// is answered late must still find its connection open.
const requestTimeout = 20 * time.Second

// orderWait is how long the second click of a double click waits for the first one's order. It is below requestTimeout,
// so that a client that has waited in vain is told so, and not that the server was too slow.
const orderWait = 10 * time.Second

// newServer returns a server with the limits that one on the open internet needs. Its requests have no part in the
// context that ends the process: they are to end by themselves.
func newServer(log *slog.Logger, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      requestTimeout + 5*time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelError),
	}
}

// newHandler returns all routes.
//
// A request goes through the middlewares in this order, from the outside:
//
//   - RequestID, so that every line of the log can name the request.
//   - Recoverer outside of Idempotency, which thus sees the panic first: it does not free the key, for nobody
//     knows what was done, and lets the panic go on. A Recoverer inside would make a 500 of it: a response like any other.
//   - Timeout outside as well: its deadline reaches the handler through Idempotency, and nothing answers while the
//     handler still runs.
//   - The user, because the key is unique within one user, and because a replay is for somebody who may have it today.
//   - Idempotency, next to the handler.
func newHandler(log *slog.Logger, locker *lock.Locker, client *redis.Client) http.Handler {
	observe := middleware.WithObserver(logEvents(log))
	payments := &paymentsAPI{}
	orders := &ordersPage{}

	r := chi.NewRouter()
	r.Use(chimiddleware.RequestID, chimiddleware.Recoverer, chimiddleware.Timeout(requestTimeout))
	r.Get("/healthz", healthz(client))

	r.Route("/payments", func(r chi.Router) {
		once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.User(userID)),
			middleware.WithRequired(), middleware.WithAtMostOnce(), observe)
		r.Use(requireUser)
		r.With(once).Post("/", payments.create)
		r.Get("/", payments.list)
		r.Get("/{id}", payments.show)
	})

	once := middleware.Idempotency(locker, orderKey(), middleware.WithRequired(), middleware.WithWait(orderWait), observe)
	r.Get("/", orders.form)
	r.With(once).Post("/orders", orders.create)
	r.Get("/orders/{id}", orders.show)
	return r
}

// healthz answers 200 when Redis does, and 503 otherwise: nothing that this server is for works without it.
func healthz(client *redis.Client) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if err := client.Ping(ctx).Err(); err != nil {
			writeProblem(w, http.StatusServiceUnavailable, "Redis does not answer.")
			return
		}
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	}
}
