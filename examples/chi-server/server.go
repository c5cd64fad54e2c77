package main

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/examples/chi-server/internal/demo"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// requestTimeout is the most time a request may take. It is above maxDelay, and below the server's WriteTimeout, so
// that the connection is still open for a late response.
const requestTimeout = 20 * time.Second

// orderWait is how long the second click of a double click waits for the order of the first. It is below
// requestTimeout, so that a client whose wait ends without an order gets 409, not 504.
const orderWait = 10 * time.Second

// newServer returns a server with limits for the open internet. Requests do not inherit the context that ends the
// process, so running requests can finish.
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
// The middlewares, from the outside in:
//
//   - RequestID comes first, so that each log line can name the request.
//   - CrossOriginProtection refuses what the page of another site makes a browser send.
//   - Recoverer is outside of Idempotency. Idempotency sees the panic first, does not free the key, because the outcome
//     is unknown, and passes the panic on. A Recoverer inside would turn the panic into a 500, a response like any
//     other.
//   - Timeout is outside too. Its deadline reaches the handler through Idempotency, and nothing answers while the
//     handler runs. The stream of events is outside of it: it is meant to last.
//   - Authentication is outside, because the key has the user in it, and because a replay is only for a user who is
//     allowed to see it now.
//   - Idempotency is next to the handler.
func newHandler(log *slog.Logger, locker *lock.Locker, client *redis.Client, shops *demo.Demo) http.Handler {
	r := chi.NewRouter()
	r.Use(chimiddleware.RequestID, http.NewCrossOriginProtection().Handler, chimiddleware.Recoverer)
	r.With(requireVisitor).Get("/events", shops.Events)
	r.Group(func(r chi.Router) {
		r.Use(chimiddleware.Timeout(requestTimeout))
		r.Get("/healthz", healthz(client))
		r.Route("/payments", func(r chi.Router) { routePayments(r, log, locker) })
		r.Group(func(r chi.Router) {
			r.Use(requireVisitor)
			routeOrders(r, locker, shops)
			shops.Routes(r)
		})
	})
	return r
}

// routePayments adds the API.
func routePayments(r chi.Router, log *slog.Logger, locker *lock.Locker) {
	payments := &paymentsAPI{}
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.User(userID)),
		middleware.WithRequired(),
		middleware.WithAtMostOnce(),
		middleware.WithObserver(logEvents(log)))
	r.Use(requireUser)
	r.With(once).Post("/", payments.create)
	r.Get("/", payments.list)
	r.Get("/{id}", payments.show)
}

// routeOrders adds the page and the form on it. Watch and Running let the page show what becomes of the form's requests.
func routeOrders(r chi.Router, locker *lock.Locker, shops *demo.Demo) {
	orders := &ordersPage{page: shops.Page}
	once := middleware.Idempotency(locker, orderKey(),
		middleware.WithRequired(),
		middleware.WithWait(orderWait),
		middleware.WithProblem(orders.problem),
		middleware.WithObserver(shops.Observe)) // which logs, too
	r.Get("/", orders.form)
	r.With(shops.Watch(demo.Form), once, shops.Running).Post("/orders", orders.create)
	r.Get("/orders/{id}", orders.show)
}

// healthz answers 200 if Redis answers, and 503 otherwise: without Redis the server can accept no payment and no order.
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
