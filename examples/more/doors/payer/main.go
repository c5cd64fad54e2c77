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
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // the driver

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/once"
	"github.com/onceguard/onceguard/sqljournal"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`host:port` to listen on")
	store := flag.String("redis", "127.0.0.1:6379", "`host:port` of Redis")
	database := flag.String("db", "orders.db", "`path` of the SQLite file, which all instances share")
	provider := flag.String("provider", "", "`URL` of a payment provider (default: none, and paying is only said)")
	flag.Parse()
	listener, err := net.Listen("tcp", *addr)
	if err == nil {
		log.Printf("listening on http://%s/orders", listener.Addr())
		err = run(listener, *store, *database, *provider)
	}
	log.Fatal(err)
}

// run takes orders and pays them.
func run(listener net.Listener, store, database, provider string) error {
	db, err := open(database)
	if err != nil {
		return err
	}
	records := sqljournal.Transactional(db, "orders", sqljournal.SQLite())
	// The namespace is that of the journal.
	locker := lock.New(redis.NewClient(&redis.Options{Addr: store}), "orders")
	takeOnce := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithRequired(), middleware.WithJournal(records))
	go (&payer{db: db, provider: provider, guard: once.New(locker)}).work(context.Background())

	http.Handle("POST /orders", takeOnce(takeOrder(records)))
	http.Handle("GET /orders", listOrders(db))
	// A handler may run for 60 s.
	server := &http.Server{ReadTimeout: 10 * time.Second, WriteTimeout: 70 * time.Second}
	return server.Serve(listener)
}

// open opens a SQLite file and creates the tables, which in a real service the migrations do.
func open(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)&_pragma=synchronous(full)")
	if err != nil {
		return nil, err
	}
	_, err = db.Exec(`create table if not exists orders (
		key      text primary key, -- of the run that has taken the order; the provider gets it too
		customer text not null,
		amount   bigint not null,
		receipt  text -- null: to be paid
	)`)
	records := sqljournal.Transactional(db, "orders", sqljournal.SQLite())
	if err == nil && errors.Is(records.Check(context.Background()), sqljournal.ErrTable) {
		_, err = db.Exec(sqljournal.Schema(sqljournal.DialectSQLite))
	}
	return db, err
}

// takeOrder writes an order whose receipt is missing: that is the order to pay. It is committed with the journal's row.
func takeOrder(records *sqljournal.Journal) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		customer, _, _ := r.BasicAuth()
		var amount int64
		if _, err := fmt.Fscan(r.Body, &amount); err != nil || amount <= 0 {
			http.Error(w, "the body is not a positive number", http.StatusUnprocessableEntity)
			return
		}
		key := middleware.FromContext(r.Context()).Key()
		err := records.InTx(r.Context(), nil, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(r.Context(), "insert into orders (key, customer, amount) values ($1, $2, $3)",
				key, customer, amount)
			if err != nil {
				return err
			}
			w.WriteHeader(http.StatusAccepted) // the worker pays
			_, err = fmt.Fprintln(w, "order taken")
			return err
		})
		// After ErrAnswered the middleware answers.
		if err != nil && !errors.Is(err, journal.ErrAnswered) {
			http.Error(w, "try again", http.StatusInternalServerError)
		}
	}
}

func listOrders(db *sql.DB) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rows, err := db.QueryContext(r.Context(), "select customer || ' ' || amount || ' ' || coalesce(receipt, 'to be paid') from orders")
		if err != nil {
			http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
			return
		}
		defer rows.Close()
		for line := ""; rows.Next() && rows.Scan(&line) == nil; {
			fmt.Fprintln(w, line)
		}
	}
}

// payer pays the orders that have no receipt. Every instance has one. They share the work by once.Do: one of them pays
// an order, and the others find it in flight or get its receipt.
type payer struct {
	db       *sql.DB
	guard    *once.Guard
	provider string
}

type order struct {
	key    string
	amount int64
}

// work pays until ctx is done.
func (p *payer) work(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(time.Second) {
		orders, err := p.unpaid(ctx)
		for _, o := range orders {
			// After an error the order stays unpaid, and is tried again.
			err = errors.Join(err, p.settle(ctx, o))
		}
		if err != nil {
			log.Print(err)
		}
	}
}

func (p *payer) unpaid(ctx context.Context) (orders []order, err error) {
	rows, err := p.db.QueryContext(ctx, "select key, amount from orders where receipt is null limit 100")
	for err == nil && rows.Next() {
		var o order
		err = rows.Scan(&o.key, &o.amount)
		orders = append(orders, o)
	}
	if err == nil {
		err = errors.Join(rows.Err(), rows.Close())
	}
	return orders, err
}

// settle pays an order and writes its receipt. A worker that dies in between has paid, and the next one gets the receipt:
// from Redis, or from the provider, because it sends the same key.
func (p *payer) settle(ctx context.Context, o order) error {
	key := once.Key{Operation: "pay", Scope: once.Anyone, ID: o.key, Input: o.amount}
	receipt, _, err := once.Do(ctx, p.guard, key, func(ctx context.Context) (string, error) {
		return p.pay(ctx, o)
	})
	if err != nil {
		return err
	}
	_, err = p.db.ExecContext(ctx, "update orders set receipt = $1 where key = $2", receipt, o.key)
	return err
}

// pay asks the provider, which pays once for each key.
func (p *payer) pay(ctx context.Context, o order) (receipt string, err error) {
	if p.provider == "" {
		log.Print("paying ", o.amount)
		return "paid", nil
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.provider, strings.NewReader(fmt.Sprint(o.amount)))
	if err != nil {
		return "", err
	}
	r.Header.Set("Idempotency-Key", o.key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1000))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("the provider answers %s", res.Status)
	}
	return string(body), err
}
