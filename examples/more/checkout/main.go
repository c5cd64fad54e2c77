// Command checkout is the checkout of a shop for agents, by the rules of ACP or UCP (package profile). Its sessions and
// orders are in SQLite, together with the record of each request.
//
//	go run ./checkout -profile acp
//
// listens on 127.0.0.1:8080, with a SQLite file in the folder for temporary files and an embedded Redis. Any Bearer token
// names the identity. Create a checkout, and complete it:
//
//	curl -i localhost:8080/checkout_sessions -H 'Authorization: Bearer ann' -H 'Idempotency-Key: k1' \
//	  -H 'Content-Type: application/json' -d '{"line_items":[{"item":{"id":"tea"},"quantity":1}],"currency":"eur"}'
//	curl -i -X POST localhost:8080/checkout_sessions/ID/complete -H 'Authorization: Bearer ann' -H 'Idempotency-Key: k2'
//
// Each of them again gets the same response, with Idempotent-Replayed: true. Other items under the key k1 get 422, and with
// -profile ucp 409. With UCP the path is /checkout-sessions, and an update is a PUT. There is one order:
//
//	curl localhost:8080/orders -H 'Authorization: Bearer ann'
//
// The query ?delay=2s makes a request slow, so that a duplicate can be sent while it runs.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // the driver

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/profile"
	"github.com/onceguard/onceguard/sqljournal"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`host:port` to listen on")
	db := flag.String("db", "sqlite:"+filepath.Join(os.TempDir(), "checkout.db"), "sqlite:`PATH`")
	name := flag.String("profile", "acp", "the rules: acp or ucp")
	opTimeout := flag.Duration("op-timeout", 500*time.Millisecond, "time for one operation on Redis")
	flag.Parse()
	s, err := openShop(context.Background(), *db, *name, *opTimeout)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("%v: http://%s%s", s.rules, *addr, s.sessions)
	server := &http.Server{Addr: *addr, Handler: s.handler(), ReadTimeout: 10 * time.Second, WriteTimeout: 70 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// protocol is what differs between the APIs.
type protocol struct {
	rules        profile.Profile
	sessions     string // the path of checkouts
	updateMethod string
	// The status of a checkout that can be completed.
	ready string
	// The HTTP status if a checkout is completed or canceled already.
	ended int
	// The member of an error with its text.
	message string
}

var protocols = map[string]protocol{
	"acp": {profile.ACP(), "/checkout_sessions", http.MethodPost, "ready_for_payment", http.StatusMethodNotAllowed, "message"},
	"ucp": {profile.UCP(), "/checkout-sessions", http.MethodPut, "ready_for_complete", http.StatusConflict, "content"},
}

// shop is all that the handlers use.
type shop struct {
	protocol
	db      *sql.DB
	mini    *miniredis.Miniredis
	journal *sqljournal.Journal
	once    *middleware.Middleware
	// For the delay that a request asks for.
	pause func(*http.Request) error
}

// tables are the shop's own. In a real service they belong in the migrations.
const tables = `
create table if not exists checkouts (id text primary key, identity text not null, content text not null);
create table if not exists orders (id text primary key, identity text not null, checkout text not null unique);`

// openShop opens the database and creates the tables that are missing.
func openShop(ctx context.Context, source, name string, opTimeout time.Duration) (*shop, error) {
	rules, ok := protocols[name]
	path, isSQLite := strings.CutPrefix(source, "sqlite:")
	if !ok || !isSQLite {
		return nil, errors.New("want -profile acp or ucp, and -db sqlite:PATH")
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)&_pragma=synchronous(full)"+
		// A transaction that has read may always write.
		"&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	s := &shop{protocol: rules, db: db, pause: pause, journal: sqljournal.Transactional(db, "checkout", sqljournal.SQLite())}
	_, err = db.ExecContext(ctx, tables)
	if err == nil && errors.Is(s.journal.Check(ctx), sqljournal.ErrTable) {
		_, err = db.ExecContext(ctx, sqljournal.Schema(sqljournal.DialectSQLite))
	}
	if err == nil {
		s.mini, err = miniredis.Run()
	}
	if err != nil {
		return nil, err
	}
	s.mini.ClockTTL(true) // expire keys in real time
	client := redis.NewClient(&redis.Options{Addr: s.mini.Addr()})
	// A real service removes old records of the journal by Expire, as journal-server does.
	s.once = middleware.New(lock.New(client, "checkout", lock.WithOpTimeout(opTimeout)), s.rules.Key(keyfunc.User(identityOf)),
		s.rules.Option(),
		// The effect and its record are committed together.
		middleware.WithJournal(s.journal))
	return s, nil
}

// handler returns all routes. Every POST and PUT is protected, and authentication is outside of that.
func (s *shop) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]http.HandlerFunc{
		"POST " + s.sessions:                        s.change(http.StatusCreated, create),
		s.updateMethod + " " + s.sessions + "/{id}": s.change(http.StatusOK, update),
		"POST " + s.sessions + "/{id}/complete":     s.change(http.StatusOK, complete),
		"POST " + s.sessions + "/{id}/cancel":       s.change(http.StatusOK, cancel),
	} {
		mux.Handle(pattern, s.requireIdentity(s.once.Handler(h)))
	}
	mux.Handle("GET "+s.sessions+"/{id}", s.requireIdentity(http.HandlerFunc(s.show)))
	mux.Handle("GET "+s.sessions, s.requireIdentity(s.list("checkouts")))
	mux.Handle("GET /orders", s.requireIdentity(s.list("orders")))
	return mux
}

type identityKey struct{}

// requireIdentity takes any Bearer token for the identity that it names. It is not authentication: do not copy it. Do copy
// its place.
func (s *shop) requireIdentity(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || token == "" {
			s.fail(w, refusal{http.StatusUnauthorized, "unauthorized", "Send Authorization: Bearer, with any token."})
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
