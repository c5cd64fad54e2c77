package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/onceguard/onceguard/contrib/promonce"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
)

// requestTimeout is the most time a request may take. It is above maxDelay and providerTimeout together, and below the server's WriteTimeout, so
// that the connection is still open for a late response.
const requestTimeout = 20 * time.Second

// namespace is the service's, in Redis and in the journal.
const namespace = "journal-server"

// service is all that the handlers use.
type service struct {
	log          *slog.Logger
	db           *database
	redis        *redisServer
	locker       *lock.Locker
	metrics      *prometheus.Registry
	provider     *provider
	stopProvider func() error
	pause        func(context.Context, time.Duration) error // for the delay that a request asks for

	// The effect of POST /payments is in the database, and that of POST /charges is at the provider. Without Redis both
	// have the same journal.
	paymentsJournal, chargesJournal *sqljournal.Journal
	paying, charging                *middleware.Middleware
}

// openService connects to the databases and creates the tables. Redis may be down, then and at any later time: requests
// take longer without it.
func openService(ctx context.Context, log *slog.Logger, cfg config) (*service, error) {
	db, err := openDatabase(ctx, cfg.db)
	if err != nil {
		return nil, err
	}
	redis, err := openRedis(cfg.redis)
	if err != nil {
		return nil, errors.Join(err, db.close())
	}
	s := &service{log: log, db: db, redis: redis, locker: redis.locker(cfg.opTimeout), metrics: prometheus.NewRegistry(), pause: sleep}
	url := cfg.provider
	if s.stopProvider = func() error { return nil }; url == "" {
		if url, s.stopProvider, err = startFakeProvider(ctx, log, db); err != nil {
			return nil, errors.Join(err, redis.close(), db.close())
		}
	}
	s.provider = newProvider(url)
	s.protect()
	return s, nil
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
			middleware.WithObserver(s.logEvent),
			middleware.WithObserver(metrics.Observe))
	}
	s.paying, s.charging = with(s.paymentsJournal), with(s.chargesJournal)
}

// close waits for the background work, such as storing a response in Redis, before it closes what that work uses.
func (s *service) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := s.locker.Close(ctx)
	return errors.Join(err, s.stopProvider(), s.redis.close(), s.db.close())
}

// handler returns all routes. Authentication is outside of the middlewares, because a replay is only for a user who is
// allowed to see it now.
func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{})) // in production not where customers are
	mux.Handle("POST /payments", requireUser(s.paying.Handler(http.HandlerFunc(s.createPayment))))
	mux.Handle("GET /payments", requireUser(http.HandlerFunc(s.listPayments)))
	mux.Handle("GET /payments/{id}", requireUser(http.HandlerFunc(s.showPayment)))
	mux.Handle("POST /charges", requireUser(s.charging.Handler(http.HandlerFunc(s.createCharge))))
	mux.Handle("GET /charges", requireUser(http.HandlerFunc(s.listCharges)))
	mux.Handle("GET /charges/{id}", requireUser(http.HandlerFunc(s.showCharge)))
	return mux
}

// requireUser takes the user name of HTTP Basic and ignores the password, so that curl can act as two users. It is not
// authentication: do not copy it. Do copy its place.
func requireUser(next http.Handler) http.Handler {
	user := keyfunc.BasicUser()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := user(r); err != nil {
			w.Header().Set("WWW-Authenticate", `Basic realm="payments", charset="UTF-8"`)
			writeProblem(w, http.StatusUnauthorized, "Authenticate by HTTP Basic, with any user name and any password.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// customer returns the user that requireUser has let in.
func customer(r *http.Request) string {
	user, _, _ := r.BasicAuth()
	return user
}

// healthz answers 200 if the database answers, and 503 otherwise. Redis is not asked: payments go on without it.
func (s *service) healthz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	if err := s.db.PingContext(ctx); err != nil {
		writeProblem(w, http.StatusServiceUnavailable, "The database does not answer.")
		return
	}
	_ = writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// logEvent logs one line for every protected request. The line has the hashed key, but not the client's key, the user,
// or any body.
func (s *service) logEvent(ctx context.Context, e middleware.Event) {
	level, err := slog.LevelInfo, ""
	if e.Err != nil { // also if the request succeeded
		level, err = slog.LevelWarn, e.Err.Error()
	}
	s.log.LogAttrs(ctx, level, "protected request", slog.String("outcome", string(e.Outcome)), slog.Int("status", e.Status),
		slog.String("key", e.Key), slog.Duration("claim", e.Claim.Duration), slog.Duration("handler", e.Handler.Duration),
		slog.Duration("settle", e.Settle.Duration), slog.String("err", err))
}

// logFindings logs a warning for each reason why a commit may be lost, or why Redis forgets or refuses what it should
// remember. A finding about Redis costs speed only.
func (s *service) logFindings(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	warn := func(what string, err error) {
		if err != nil {
			s.log.Warn(what, "finding", err)
		}
	}
	warn("database check", s.chargesJournal.Check(ctx))
	if !s.redis.embedded() {
		warn("redis check", s.locker.Check(ctx))
	}
}
