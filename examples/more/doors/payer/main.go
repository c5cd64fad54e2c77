// Command payer takes orders into a database, and pays them at a provider that takes idempotency keys.
//
//	redis-server &
//	go run .
//	curl -i -u ann: 127.0.0.1:8080/orders -H 'Idempotency-Key: k1' -d 1250   # twice: one order
//	curl -i 127.0.0.1:8080/orders                                            # it is paid
//
// An order and the row that says "to be paid" are committed together, with the record of the response. A worker reads such
// rows, and pays until it gets an answer. So a crash leaves nothing open at any instant: the order, its row and the record
// are all there, or none is; and the provider takes the same key from every worker.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"net/url"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // the driver

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/once"
	"github.com/onceguard/onceguard/sqljournal"
)

// config is where the things are that a service needs.
type config struct {
	redis    string // host:port
	database string // the path of a SQLite file, which all instances share; a real service has PostgreSQL
	provider string // the URL of the payment provider; empty: pay only says that it pays
}

func main() {
	var cfg config
	addr := flag.String("addr", "127.0.0.1:8080", "`host:port` to listen on")
	flag.StringVar(&cfg.redis, "redis", "127.0.0.1:6379", "`host:port` of Redis")
	flag.StringVar(&cfg.database, "db", "orders.db", "`path` of the SQLite file")
	flag.StringVar(&cfg.provider, "provider", "", "`URL` of a payment provider")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", *addr)
	if err == nil {
		log.Printf("listening on http://%s/orders", listener.Addr())
		err = run(ctx, listener, cfg)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run takes orders and pays them until ctx is done.
func run(ctx context.Context, listener net.Listener, cfg config) error {
	db, err := open(cfg.database)
	if err != nil {
		return err
	}
	journal := sqljournal.Transactional(db, "orders", sqljournal.SQLite())
	if err := createTables(ctx, db, journal); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: cfg.redis, ContextTimeoutEnabled: true})
	locker := lock.New(client, "orders") // the journal has the same namespace
	takeOnce := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithRequired(), middleware.WithJournal(journal))
	payer := &payer{db: db, provider: cfg.provider, guard: once.New(locker, once.WithMaxDuration(time.Minute))}

	mux := http.NewServeMux()
	mux.Handle("POST /orders", takeOnce(takeOrder(journal)))
	mux.Handle("GET /orders", listOrders(db))
	server := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	served, paid := make(chan error, 1), make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	go func() { paid <- payer.work(ctx) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	return errors.Join(server.Shutdown(closing), <-paid, locker.Close(closing), client.Close(), db.Close())
}

func open(path string) (*sql.DB, error) {
	full, err := filepath.Abs(path) // in a URL, the begin of a relative path would be a host
	if err != nil {
		return nil, err
	}
	pragmas := url.Values{"_pragma": {"journal_mode(wal)", "busy_timeout(10000)", "synchronous(full)"}}
	return sql.Open("sqlite", (&url.URL{Scheme: "file", Path: full, RawQuery: pragmas.Encode()}).String())
}

// createTables creates the tables that are missing, which in a real service the migrations do.
func createTables(ctx context.Context, db *sql.DB, journal *sqljournal.Journal) error {
	_, err := db.ExecContext(ctx, `create table if not exists orders (
		key      text primary key, -- of the run that has taken the order; the provider gets it too
		customer text not null,
		amount   bigint not null,
		receipt  text -- null: to be paid
	)`)
	if err == nil && errors.Is(journal.Check(ctx), sqljournal.ErrTable) {
		_, err = db.ExecContext(ctx, sqljournal.Schema(sqljournal.DialectSQLite))
	}
	return err
}
