package sqljournal_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
)

// openSQLite opens a new database with the journal's table and one for payments.
func openSQLite() (db *sql.DB, remove func()) {
	dir, err := os.MkdirTemp("", "sqljournal")
	if err != nil {
		log.Fatal(err)
	}
	path := filepath.Join(dir, "payments.db")
	db, err = sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)&_pragma=synchronous(full)")
	if err != nil {
		log.Fatal(err)
	}
	_, err = db.Exec(sqljournal.Schema(sqljournal.DialectSQLite) + "; create table payments (id integer primary key, amount integer)")
	if err != nil {
		log.Fatal(err)
	}
	return db, func() {
		db.Close()
		os.RemoveAll(dir)
	}
}

type payment struct {
	ID     int64 `json:"id"`
	Amount int64 `json:"amount"`
}

func insertPayment(ctx context.Context, tx *sql.Tx, p payment) (payment, error) {
	err := tx.QueryRowContext(ctx, "insert into payments (amount) values ($1) returning id", p.Amount).Scan(&p.ID)
	return p, err
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(v)
}

// startLocker stands for a lock.New at your program's start.
func startLocker(opts ...lock.Option) (locker *lock.Locker, server *miniredis.Miniredis, stop func()) {
	server = miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	locker = lock.New(client, "payments-api", opts...)
	return locker, server, func() {
		locker.Close(context.Background())
		client.Close()
		server.Close()
	}
}

// post sends a payment of the user ann, and prints the answer.
func post(h http.Handler) {
	r := httptest.NewRequest(http.MethodPost, "/payments", nil)
	r.SetBasicAuth("ann", "")
	r.Header.Set("Idempotency-Key", "8e03978e")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Header().Get("Idempotent-Replayed") == "true" {
		fmt.Print("replayed ")
	}
	fmt.Print(w.Code, " ", w.Body)
}

// doubleClick posts twice to pay, protected by journal. Redis forgets everything between the two.
func doubleClick(journal *sqljournal.Journal, pay http.HandlerFunc) {
	locker, server, stop := startLocker()
	defer stop()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithJournal(journal))
	handler := once(pay)
	post(handler)
	server.FlushAll()
	post(handler)
}

// printPayments prints how many payments were really made.
func printPayments(db *sql.DB) {
	var n int
	if err := db.QueryRow("select count(*) from payments").Scan(&n); err != nil {
		log.Fatal(err)
	}
	fmt.Println("payments:", n)
}

// The whole story: the payment, its response and the journal's row are committed together, so the second click is
// answered with the first one's response even if Redis has forgotten everything in between.
func ExampleJournal_InTx() {
	db, remove := openSQLite()
	defer remove()
	locker, server, stop := startLocker()
	defer stop()

	journal := sqljournal.Transactional(db, "payments-api", sqljournal.SQLite())
	if err := journal.Check(context.Background()); err != nil {
		log.Print(err) // whether a finding ends the program is up to you
	}
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithRequired(), middleware.WithJournal(journal))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		order := payment{Amount: 1250} // from the body of r
		err := journal.InTx(r.Context(), nil, func(tx *sql.Tx) error {
			payment, err := insertPayment(r.Context(), tx, order)
			if err != nil {
				return err
			}
			return writeJSON(w, http.StatusCreated, payment)
		})
		if err != nil {
			http.Error(w, "payment failed", http.StatusInternalServerError) // not sent after ErrAnswered
		}
	}))

	post(pay)
	server.FlushAll() // Redis forgets everything
	post(pay)         // the second click
	printPayments(db)
	// Output:
	// 201 {"id":1,"amount":1250}
	// replayed 201 {"id":1,"amount":1250}
	// payments: 1
}

func ExampleTransactional() {
	ctx := context.Background()
	locker, _, stop := startLocker()
	defer stop()

	db, err := sql.Open("pgx", "postgres://localhost/payments") // import _ "github.com/jackc/pgx/v5/stdlib"
	if err != nil {
		log.Fatal(err)
	}
	// By default only 2 connections stay open: under load most requests would open one.
	db.SetMaxOpenConns(50)
	db.SetMaxIdleConns(50)
	journal := sqljournal.Transactional(db, "payments-api") // the namespace of the Locker
	if err := journal.Check(ctx); errors.Is(err, sqljournal.ErrTable) || errors.Is(err, sqljournal.ErrSetting) {
		log.Fatal(err) // run the migration first, or change the setting
	} else if err != nil {
		log.Print(err) // a commit may be lost, or the database does not answer: up to you
	}
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithRequired(), middleware.WithJournal(journal))

	http.Handle("POST /payments", once(http.NotFoundHandler())) // instead of your handler
}

// What a crash left open is looked up at the payment provider.
func ExampleJournal_Sweep() {
	db, remove := openSQLite()
	defer remove()
	ctx := context.Background()
	locker, _, stop := startLocker()
	defer stop()
	// A run begins, and its process dies.
	run := journal.Run{Key: locker.StorageKey("k"), Token: "6b0f0f7e-5d0c-4c55-9d4b-0a6d9c1e7a11", Limit: time.Millisecond}
	journal := sqljournal.Intent(db, "payments-api", sqljournal.SQLite())
	if _, err := journal.Begin(ctx, run); err != nil {
		log.Fatal(err)
	}
	m := middleware.New(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithJournal(journal)) // that of the handler
	wasPaid := func(context.Context, []byte) (bool, error) { return true, nil }                         // asks the provider
	header := http.Header{"Content-Type": {"application/json"}}
	paymentOf := func([]byte) []byte { return []byte(`{"id":1}`) }

	sweep := func() int { // a service calls it once a minute
		n, err := journal.Sweep(ctx, 2*time.Minute, time.Minute, func(ctx context.Context, u sqljournal.Unfinished) error {
			paid, err := wasPaid(ctx, u.Note)
			if err != nil {
				return err // it is handed out again after a minute, the third argument
			}
			if !paid {
				return u.Free(ctx, db) // a retry runs
			}
			record, err := m.Record(u.Key, middleware.Responded(http.StatusCreated, header, paymentOf(u.Note)))
			if err != nil {
				return err
			}
			return u.Done(ctx, db, 24*time.Hour, record) // a retry gets this response
		})
		if err != nil {
			log.Print(err)
		}
		return n
	}
	fmt.Println("handed out:", sweep()) // the run may still be late

	if _, err := db.Exec("update onceguard_journal set until = 0"); err != nil { // long ago
		log.Fatal(err)
	}
	fmt.Println("handed out:", sweep())
	entry, err := journal.Look(ctx, run.Key)
	fmt.Println(entry.State, entry.Record != nil, err)
	// Output:
	// handed out: 0
	// handed out: 1
	// done true <nil>
}
