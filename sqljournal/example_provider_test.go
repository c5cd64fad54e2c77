package sqljournal_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
)

var errDeclined = errors.New("the card was declined")

// charge stands for a call to the payment provider. Its key is the provider's idempotency key.
func charge(_ context.Context, key string, _ payment) error {
	if key == "" {
		return errors.New("no key")
	}
	return context.DeadlineExceeded // the provider did not answer in time: it may have charged
}

// The payment is made at a provider, and the response has its answer. Whenever the provider may have charged and the
// order is not written, the handler calls Unknown, so that its answer is not stored and a sweep finds out.
func ExampleIntent() {
	db, remove := openSQLite()
	defer remove()
	locker, _, stop := startLocker()
	defer stop()
	journal := sqljournal.Intent(db, "payments-api", sqljournal.SQLite())
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithRequired(), middleware.WithJournal(journal), middleware.WithMaxDuration(25*time.Second))

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		order := payment{Amount: 1250} // from the body of r
		run := middleware.FromContext(r.Context())
		if err := journal.Note(r.Context(), []byte("order 4711")); err != nil {
			_ = run.Discard() // nothing has happened: a retry runs
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		err := charge(r.Context(), run.Key(), order) // the provider pays once for each run.Key()
		if errors.Is(err, errDeclined) {
			http.Error(w, "the card was declined", http.StatusPaymentRequired) // stored: a retry gets it again
			return
		}
		if err == nil {
			err = journal.InTx(r.Context(), nil, func(tx *sql.Tx) error {
				payment, err := insertPayment(r.Context(), tx, order)
				if err != nil {
					return err
				}
				return writeJSON(w, http.StatusCreated, payment)
			})
		}
		if err != nil {
			run.Unknown() // the provider may have charged: let Sweep decide
			http.Error(w, "not known yet: ask again with the same key", http.StatusServiceUnavailable)
		}
	}))

	post(pay)
	entry, err := journal.Look(context.Background(), middlewareKey(db))
	fmt.Println(entry.State, err)
	// Output:
	// 503 not known yet: ask again with the same key
	// running <nil>
}

// middlewareKey returns the key of the journal's only row.
func middlewareKey(db *sql.DB) (key string) {
	if err := db.QueryRow("select key from onceguard_journal").Scan(&key); err != nil {
		log.Fatal(err)
	}
	return key
}

func insertToBePaid(ctx context.Context, tx *sql.Tx, key string, payment int64) error {
	_, err := tx.ExecContext(ctx, "insert into to_be_paid (key, payment) values ($1, $2)", key, payment)
	return err
}

// The order and a row for the worker that calls the provider are committed together.
func ExampleTransactional_worker() {
	db, remove := openSQLite()
	defer remove()
	if _, err := db.Exec("create table to_be_paid (key text primary key, payment integer)"); err != nil {
		log.Fatal(err)
	}
	journal := sqljournal.Transactional(db, "payments-api", sqljournal.SQLite())

	doubleClick(journal, func(w http.ResponseWriter, r *http.Request) {
		order := payment{Amount: 1250} // from the body of r
		run := middleware.FromContext(r.Context())
		err := journal.InTx(r.Context(), nil, func(tx *sql.Tx) error {
			payment, err := insertPayment(r.Context(), tx, order)
			if err != nil {
				return err
			}
			if err := insertToBePaid(r.Context(), tx, run.Key(), payment.ID); err != nil {
				return err
			}
			return writeJSON(w, http.StatusAccepted, payment) // the worker pays, with run.Key() as the provider's key
		})
		if err != nil {
			http.Error(w, "try again", http.StatusInternalServerError) // nothing was written; not sent after ErrAnswered
		}
	})
	printPayments(db)
	// Output:
	// 202 {"id":1,"amount":1250}
	// replayed 202 {"id":1,"amount":1250}
	// payments: 1
}
