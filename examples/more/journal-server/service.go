package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/contrib/promonce"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
)

// requestTimeout is the most time a request may take. It is above the longest delay of pause.
const requestTimeout = 20 * time.Second

// namespace is the service's, in Redis and in the journal.
const namespace = "journal-server"

// service is all that the handlers use.
type service struct {
	db       *database
	locker   *lock.Locker
	client   *redis.Client // nil for none
	provider provider
	metrics  *prometheus.Registry

	// The effect of POST /payments is in the database, and that of POST /charges is at the provider. Without Redis both
	// have the same journal.
	paymentsJournal, chargesJournal *sqljournal.Journal
	paying, charging                *middleware.Middleware
}

// openService connects to the databases and creates the tables. Redis may be down, then and at any later time: requests
// take longer without it.
func openService(ctx context.Context, cfg config) (*service, error) {
	db, err := openDatabase(ctx, cfg.db)
	if err != nil {
		return nil, err
	}
	s := &service{db: db, provider: fakeProvider{db}, metrics: prometheus.NewRegistry()}
	if err := s.openRedis(cfg); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s.protect()
	findings := s.chargesJournal.Check(ctx) // why a commit may be lost
	if cfg.redis != "" {
		// The locker's cost speed only.
		findings = errors.Join(findings, s.locker.Check(ctx))
	}
	if findings != nil {
		slog.Warn("check", "findings", findings)
	}
	return s, nil
}

func (s *service) openRedis(cfg config) error {
	if s.locker = lock.None(namespace); cfg.redis == "none" {
		return nil
	}
	if cfg.redis == "" {
		mini, err := miniredis.Run()
		if err != nil {
			return err
		}
		// Keys expire in real time, and not when a test moves the clock.
		mini.ClockTTL(true)
		cfg.redis = "redis://" + mini.Addr()
	}
	options, err := redis.ParseURL(cfg.redis)
	// Its text may contain the password.
	if err != nil {
		return errors.New("the Redis URL is malformed: want redis://[user:password@]host:port[/database]")
	}
	// Calls end at their deadlines.
	options.ContextTimeoutEnabled = true
	s.client = redis.NewClient(options)
	s.locker = lock.New(s.client, namespace, lock.WithOpTimeout(cfg.opTimeout))
	return nil
}

// protect makes the middlewares. With -redis none the row of an intent journal takes the place of the claim in Redis: a
// transactional one has no row before the commit, so it cannot be used alone.
//
// There is no WithAtMostOnce: a payment whose transaction was not committed has not happened, so it may run again.
func (s *service) protect() {
	s.chargesJournal = sqljournal.Intent(s.db.DB, namespace, s.db.options...)
	s.paymentsJournal = sqljournal.Transactional(s.db.DB, namespace, s.db.options...)
	if s.locker.IsNone() {
		s.paymentsJournal = s.chargesJournal
	}
	metrics := promonce.New(s.metrics, s.locker)
	with := func(j *sqljournal.Journal) *middleware.Middleware {
		return middleware.New(s.locker, keyfunc.Standard(keyfunc.BasicUser()),
			middleware.WithRequired(),
			middleware.WithJournal(j),
			middleware.WithRetention(retention),
			middleware.WithMaxDuration(requestTimeout),
			middleware.WithObserver(logEvent),
			middleware.WithObserver(metrics.Observe))
	}
	s.paying, s.charging = with(s.paymentsJournal), with(s.chargesJournal)
}

// close waits for the background work, such as storing a response in Redis, before it closes what that work uses.
func (s *service) close(ctx context.Context) error {
	err := s.locker.Close(ctx)
	if s.client != nil {
		err = errors.Join(err, s.client.Close())
	}
	return errors.Join(err, s.db.Close())
}

// handler returns all routes. Authentication is outside of the middlewares, because a replay is only for a user who is
// allowed to see it now.
func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	// In production this is not where customers are.
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{}))
	mux.Handle("POST /payments", requireUser(s.paying.Handler(http.HandlerFunc(s.createPayment))))
	mux.Handle("POST /charges", requireUser(s.charging.Handler(http.HandlerFunc(s.createCharge))))
	mux.Handle("GET /payments", requireUser(http.HandlerFunc(s.showPayments)))
	mux.Handle("GET /payments/{id}", requireUser(http.HandlerFunc(s.showPayments)))
	return mux
}

// requireUser takes the user name of HTTP Basic and ignores the password, so that curl can act as two users. It is not
// authentication: do not copy it. Do copy its place.
func requireUser(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if customer(r) == "" {
			w.Header().Set("WWW-Authenticate", `Basic realm="payments", charset="UTF-8"`)
			writeProblem(w, http.StatusUnauthorized, "Authenticate by HTTP Basic, with any user name and any password.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func customer(r *http.Request) string {
	user, _, _ := r.BasicAuth()
	return user
}

// healthz answers 503 if the database does not answer. Redis is not asked: payments go on without it.
func (s *service) healthz(w http.ResponseWriter, r *http.Request) {
	if err := s.db.PingContext(r.Context()); err != nil {
		writeProblem(w, http.StatusServiceUnavailable, "The database does not answer.")
	}
}

// logEvent logs one line for every protected request. The line has the hashed key, but not the client's key, the user,
// or any body.
func logEvent(ctx context.Context, e middleware.Event) {
	level := slog.LevelInfo
	// There is one also if the request succeeded.
	if e.Err != nil {
		level = slog.LevelWarn
	}
	slog.Log(ctx, level, "protected request", "outcome", e.Outcome, "status", e.Status, "key", e.Key, "err", e.Err)
}

// writeProblem answers in the format of the middleware's own refusals (RFC 9457).
func writeProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(middleware.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail,
	})
}
