package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
)

// namespace is the service's, in Redis and in the journal.
const namespace = "checkout"

// shop is all that the handlers use.
type shop struct {
	protocol
	log     *slog.Logger
	db      *database
	client  *redis.Client
	mini    *miniredis.Miniredis // nil with a real server
	locker  *lock.Locker
	journal *sqljournal.Journal
	once    *middleware.Middleware
	pause   func(context.Context, time.Duration) error // for the delay that a request asks for
}

// openShop opens the database and makes a client of Redis, which may be down.
func openShop(ctx context.Context, log *slog.Logger, cfg config) (*shop, error) {
	rules, ok := protocols[cfg.profile]
	if !ok {
		return nil, errors.New("-profile: want acp or ucp")
	}
	db, err := openDatabase(ctx, cfg.db)
	if err != nil {
		return nil, err
	}
	s := &shop{protocol: rules, log: log, db: db, pause: sleep}
	if err := s.openRedis(cfg.redis); err != nil {
		return nil, errors.Join(err, db.close())
	}
	s.locker = lock.New(s.client, namespace, lock.WithOpTimeout(cfg.opTimeout))
	s.journal = sqljournal.Transactional(db.DB, namespace, sqljournal.SQLite())
	s.once = middleware.New(s.locker, s.rules.Key(keyfunc.User(identityOf)),
		s.rules.Option(),
		middleware.WithJournal(s.journal), // the effect and its record are committed together
		middleware.WithMaxDuration(requestTimeout),
		middleware.WithObserver(s.logEvent))
	return s, nil
}

func (s *shop) openRedis(url string) (err error) {
	options := &redis.Options{}
	if url != "" {
		if options, err = redis.ParseURL(url); err != nil { // whose text may contain the password
			return errors.New("the Redis URL is malformed: want redis://[user:password@]host:port[/database]")
		}
	} else {
		if s.mini, err = miniredis.Run(); err != nil {
			return err
		}
		s.mini.ClockTTL(true) // expire keys in real time
		options.Addr = s.mini.Addr()
	}
	options.ContextTimeoutEnabled = true
	s.client = redis.NewClient(options)
	return nil
}

// close waits for the background work, such as storing a response in Redis, before it closes what that work uses.
func (s *shop) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := errors.Join(s.locker.Close(ctx), s.client.Close())
	if s.mini != nil {
		s.mini.Close()
	}
	return errors.Join(err, s.db.close())
}

// expire removes the journal's records that are older than the retention, every minute until ctx is done.
func (s *shop) expire(ctx context.Context) {
	every := time.NewTicker(time.Minute)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		if _, err := s.journal.Expire(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("expire", "err", err)
		}
	}
}

// handler returns all routes. Every POST and PUT is protected, and authentication is outside of that.
func (s *shop) handler() http.Handler {
	protected := func(h http.HandlerFunc) http.Handler { return s.requireIdentity(s.once.Handler(h)) }
	open := func(h http.HandlerFunc) http.Handler { return s.requireIdentity(h) }
	mux := http.NewServeMux()
	mux.Handle("POST "+s.sessions, protected(s.create))
	mux.Handle(s.updateMethod+" "+s.sessions+"/{id}", protected(s.update))
	mux.Handle("POST "+s.sessions+"/{id}/complete", protected(s.complete))
	mux.Handle("POST "+s.sessions+"/{id}/cancel", protected(s.cancel))
	mux.Handle("GET "+s.sessions+"/{id}", open(s.show))
	mux.Handle("GET "+s.sessions, open(s.list))
	mux.Handle("GET /orders", open(s.listOrders))
	return mux
}

type identityKey struct{}

// requireIdentity takes any Bearer token for the identity that it names. It is not authentication: do not copy it. Do copy
// its place.
func (s *shop) requireIdentity(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || token == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			_ = writeJSON(w, http.StatusUnauthorized, s.failure("unauthorized", "Send Authorization: Bearer, with any token."))
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, token)))
	})
}

// identityOf returns the identity that requireIdentity has let in.
func identityOf(ctx context.Context) string {
	id, _ := ctx.Value(identityKey{}).(string)
	return id
}

// logEvent logs one line for every request whose method is protected. It has the hashed key alone.
func (s *shop) logEvent(ctx context.Context, e middleware.Event) {
	level, err := slog.LevelInfo, ""
	if e.Err != nil {
		level, err = slog.LevelWarn, e.Err.Error()
	}
	s.log.LogAttrs(ctx, level, "protected request", slog.String("outcome", string(e.Outcome)), slog.Int("status", e.Status),
		slog.String("key", e.Key), slog.String("err", err))
}

const maxDelay = 10 * time.Second

// delay waits as long as the request asks for.
func (s *shop) delay(r *http.Request) error {
	d, err := time.ParseDuration(cmp.Or(r.URL.Query().Get("delay"), "0s"))
	if err != nil || d < 0 || d > maxDelay {
		return refusal{http.StatusBadRequest, "invalid", "The delay must be a time between 0s and 10s, like 1.5s."}
	}
	return s.pause(r.Context(), d)
}

// sleep returns early, with an error, when ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
