package sqljournal_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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

// A handler whose effect is in the database: the payment, the response and the journal's row are committed together.
func Example() {
	db, remove := openSQLite()
	defer remove()
	journal := sqljournal.Transactional(db, sqljournal.SQLite())
	if err := journal.Check(context.Background()); err != nil {
		log.Fatal(err)
	}

	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		order := payment{Amount: 1250} // from the body of r
		err := journal.InTx(r.Context(), nil, func(tx *sql.Tx) error {
			payment, err := insertPayment(r.Context(), tx, order)
			if err != nil {
				return err
			}
			return writeJSON(w, http.StatusCreated, payment)
		})
		if err != nil {
			http.Error(w, "payment failed", http.StatusInternalServerError) // discarded after ErrAnswered
		}
	})

	w := httptest.NewRecorder()
	pay.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/payments", nil))
	fmt.Print(w.Code, " ", w.Body)
	// Output: 201 {"id":1,"amount":1250}
}

func ExampleSchema() {
	db, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection would have a memory of its own
	if _, err := db.Exec(sqljournal.Schema(sqljournal.DialectSQLite)); err != nil {
		log.Fatal(err)
	}
	var name string
	if err := db.QueryRow("select name from sqlite_master where type = 'table'").Scan(&name); err != nil {
		log.Fatal(err)
	}
	fmt.Println(name)
	// Output: onceguard_journal
}

func ExampleTransactional() {
	db, err := sql.Open("pgx", "postgres://localhost/payments")
	if err != nil {
		log.Fatal(err)
	}
	journal := sqljournal.Transactional(db)
	if err := journal.Check(context.Background()); err != nil {
		log.Print(err) // whether a finding ends the program is up to you
	}
}

// What a crash left open is looked up at the payment provider.
func ExampleJournal_Sweep() {
	db, remove := openSQLite()
	defer remove()
	ctx := context.Background()
	journal := sqljournal.Intent(db, sqljournal.SQLite())

	// A run begins, and its process dies.
	run := middleware.JournalRun{Key: "payments:{0f3a}5f", Token: "6b0f0f7e-5d0c-4c55-9d4b-0a6d9c1e7a11", Limit: time.Millisecond}
	if _, err := journal.Begin(ctx, run); err != nil {
		log.Fatal(err)
	}
	wasPaid := func(context.Context, []byte) (bool, error) { return true, nil } // asks the provider

	for n := 0; n == 0; {
		var err error
		n, err = journal.Sweep(ctx, 0, time.Minute, func(ctx context.Context, u sqljournal.Unfinished) error {
			paid, err := wasPaid(ctx, u.Note)
			if err != nil {
				return err // it is handed out again when the lease of a minute is over
			}
			if paid {
				return u.Done(ctx, db, 24*time.Hour)
			}
			return u.Free(ctx, db)
		})
		if err != nil {
			log.Print(err)
		}
	}

	entry, err := journal.Look(ctx, run.Key)
	fmt.Println(entry.State, err)
	// Output: done <nil>
}

// An intent handler notes what a sweep needs in order to find out what has happened.
func ExampleJournal_Note() {
	db, remove := openSQLite()
	defer remove()
	journal := sqljournal.Intent(db, sqljournal.SQLite())

	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := journal.Note(r.Context(), []byte("order 4711")); err != nil {
			http.Error(w, "payment failed", http.StatusInternalServerError)
			return
		}
		// Here the payment provider is called.
		w.WriteHeader(http.StatusCreated)
	})

	w := httptest.NewRecorder()
	pay.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/payments", nil))
	fmt.Println(w.Code)
	// Output: 201
}

func ExampleJournal_Expire() {
	db, remove := openSQLite()
	defer remove()
	journal := sqljournal.Transactional(db, sqljournal.SQLite())

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond) // in a program, until it ends
	defer cancel()
	every := time.NewTicker(5 * time.Minute)
	defer every.Stop()
	for {
		if _, err := journal.Expire(ctx); err != nil && ctx.Err() == nil {
			log.Print(err)
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// A transaction of database/sql that other code begins and commits.
func ExampleJournal_Around() {
	db, remove := openSQLite()
	defer remove()
	journal := sqljournal.Transactional(db, sqljournal.SQLite())

	handle := func(w http.ResponseWriter, r *http.Request) error {
		return journal.Around(r.Context(), func(complete func(sqljournal.Execer) error) error {
			tx, err := db.BeginTx(r.Context(), nil)
			if err != nil {
				return err
			}
			defer tx.Rollback() // does nothing after the commit
			if _, err := tx.Exec("insert into payments (amount) values (1250)"); err != nil {
				return err
			}
			w.WriteHeader(http.StatusCreated)
			if err := complete(tx); err != nil {
				return err
			}
			return tx.Commit()
		})
	}

	w := httptest.NewRecorder()
	err := handle(w, httptest.NewRequest(http.MethodPost, "/payments", nil))
	fmt.Println(w.Code, err)
	// Output: 201 <nil>
}

// A transaction of pgx, in the same database as the journal's.
func ExamplePgx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/payments")
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("pgx", "postgres://localhost/payments")
	if err != nil {
		log.Fatal(err)
	}
	journal := sqljournal.Transactional(db)

	http.HandleFunc("POST /payments", func(w http.ResponseWriter, r *http.Request) {
		err := journal.Around(r.Context(), func(complete func(sqljournal.Execer) error) error {
			return pgx.BeginFunc(r.Context(), pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(r.Context(), "insert into payments (amount) values (1250)"); err != nil {
					return err
				}
				w.WriteHeader(http.StatusCreated)
				return complete(sqljournal.Pgx(tx))
			})
		})
		if err != nil {
			http.Error(w, "payment failed", http.StatusInternalServerError) // discarded after ErrAnswered
		}
	})
}
