package main

import (
	"context"
	"encoding/json"
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

const (
	// requestTimeout is the most time a request may take. It is above the longest delay.
	requestTimeout = 20 * time.Second

	// orderWait is how long the second click of a double click waits for the order of the first. It is below
	// requestTimeout, so that a client whose wait ends without an order gets 409, not 504.
	orderWait = 10 * time.Second
)

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
func newHandler(locker *lock.Locker, client *redis.Client, shops *demo.Demo) http.Handler {
	r := chi.NewRouter()
	r.Use(chimiddleware.RequestID, http.NewCrossOriginProtection().Handler, chimiddleware.Recoverer)
	r.With(requireVisitor).Get("/events", shops.Events)
	r.Group(func(r chi.Router) {
		r.Use(chimiddleware.Timeout(requestTimeout))
		r.Get("/healthz", healthz(client))
		r.Route("/payments", func(r chi.Router) { routePayments(r, locker) })
		r.Group(func(r chi.Router) {
			r.Use(requireVisitor)
			routeOrders(r, locker, shops)
			shops.Routes(r)
		})
	})
	return r
}

func routePayments(r chi.Router, locker *lock.Locker) {
	made := ledger[payment]{}
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.User(user)),
		middleware.WithRequired(),
		middleware.WithAtMostOnce(),
		middleware.WithObserver(logEvent))
	r.Use(requireUser)
	r.With(once).Post("/", createPayment(&made))
	r.Get("/", showPayments(&made))
	r.Get("/{id}", showPayments(&made))
}

func routeOrders(r chi.Router, locker *lock.Locker, shops *demo.Demo) {
	placed := ledger[order]{}
	once := middleware.Idempotency(locker, orderKey(),
		middleware.WithRequired(),
		middleware.WithWait(orderWait),
		middleware.WithObserver(logEvent))
	r.Get("/", orderForm(&placed, shops.Page))
	r.With(once).Post("/orders", createOrder(&placed))
	r.Get("/orders/{id}", showOrder(&placed))
}

// logEvent logs one line for every protected request. The line has the hashed key, but not the client's key, the user, or any
// body.
func logEvent(ctx context.Context, e middleware.Event) {
	level := slog.LevelInfo
	if e.Err != nil {
		level = slog.LevelWarn
	}
	slog.Log(ctx, level, "protected request", "outcome", e.Outcome, "status", e.Status, "key", e.Key,
		"request", chimiddleware.GetReqID(ctx), "err", e.Err)
}

// healthz answers 503 if Redis does not answer: without it the server can accept no payment and no order.
func healthz(client *redis.Client) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if err := client.Ping(ctx).Err(); err != nil {
			writeProblem(w, http.StatusServiceUnavailable, "Redis does not answer.")
		}
	}
}

// delay waits as long as the query asks for, and 10 s at most, so that a client can send a duplicate meanwhile. If the request's time is over
// before, it returns false and frees the key by Discard, because nothing has happened yet. That is all that these handlers
// need to know about idempotency.
func delay(r *http.Request) bool {
	d, _ := time.ParseDuration(r.URL.Query().Get("delay"))
	select {
	case <-time.After(min(d, 10*time.Second)):
		return true
	case <-r.Context().Done():
		// It fails only after a byte of the response has been sent.
		_ = middleware.FromContext(r.Context()).Discard()
		return false
	}
}

// writeProblem answers in the format of the middleware's own refusals (RFC 9457).
func writeProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(middleware.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail,
	})
}
