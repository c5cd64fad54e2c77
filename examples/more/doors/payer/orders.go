package main

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
)

// takeOrder writes an order whose receipt is missing: that is the order to pay. It is committed with the journal's row.
func takeOrder(records *sqljournal.Journal) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		if err != nil && !errors.Is(err, journal.ErrAnswered) { // then the middleware answers
			http.Error(w, "try again", http.StatusInternalServerError)
		}
	})
}

func listOrders(db *sql.DB) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rows, err := db.QueryContext(r.Context(), "select customer, amount, coalesce(receipt, 'to be paid') from orders")
		if err != nil {
			http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
			return
		}
		defer rows.Close()
		for rows.Next() {
			var customer, receipt string
			var amount int64
			if rows.Scan(&customer, &amount, &receipt) == nil {
				fmt.Fprintln(w, customer, amount, receipt)
			}
		}
	})
}
