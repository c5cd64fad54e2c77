package sqljournal_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"net/http"

	"github.com/onceguard/onceguard/sqljournal"
)

// DBTX is what *sql.DB and *sql.Tx have in common. This type and the next have the form of what sqlc generates.
type DBTX interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Queries has a method for each query.
type Queries struct{ db DBTX }

// New returns queries that run on db.
func New(db DBTX) *Queries { return &Queries{db} }

// WithTx returns the same queries within tx.
func (q *Queries) WithTx(tx *sql.Tx) *Queries { return &Queries{tx} }

// Payment is a row of the table payments.
type Payment struct {
	ID     int64 `json:"id"`
	Amount int64 `json:"amount"`
}

// CreatePayment stores a payment.
func (q *Queries) CreatePayment(ctx context.Context, amount int64) (Payment, error) {
	var p Payment
	row := q.db.QueryRowContext(ctx, "insert into payments (amount) values (?1) returning id, amount", amount)
	err := row.Scan(&p.ID, &p.Amount)
	return p, err
}

// The queries that sqlc generates run in the journal's transaction by their WithTx. (Where sqlc is set to pgx, so that
// WithTx takes a pgx.Tx, it is [sqljournal.Journal.Around] and [sqljournal.Pgx].)
func ExampleJournal_InTx_sqlc() {
	db, remove := openSQLite()
	defer remove()
	journal := sqljournal.Transactional(db, "payments-api", sqljournal.SQLite())
	queries := New(db)

	doubleClick(journal, func(w http.ResponseWriter, r *http.Request) {
		err := journal.InTx(r.Context(), nil, func(tx *sql.Tx) error {
			payment, err := queries.WithTx(tx).CreatePayment(r.Context(), 1250)
			if err != nil {
				return err
			}
			w.WriteHeader(http.StatusCreated)
			return json.NewEncoder(w).Encode(payment)
		})
		if err != nil {
			http.Error(w, "payment failed", http.StatusInternalServerError) // not sent after ErrAnswered
		}
	})
	printPayments(db)
	// Output:
	// 201 {"id":1,"amount":1250}
	// replayed 201 {"id":1,"amount":1250}
	// payments: 1
}
