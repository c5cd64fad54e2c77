package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware"
)

// order is the body of a request for a payment.
type order struct {
	// In the currency's smallest unit: 1250 with EUR is 12.50 euros.
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// payment is a payment that was made. A charge has a receipt.
type payment struct {
	ID string `json:"id"`
	order
	Receipt  string `json:"receipt,omitempty"`
	customer string // not in the response
}

// createPayment makes a payment. The payment and the record of the response are committed together by InTx: after a
// crash both are there, or neither is.
func (s *service) createPayment(w http.ResponseWriter, r *http.Request) {
	o, ok := readOrder(w, r)
	if !ok {
		return
	}
	// It is before the transaction, which should be short.
	if pause(r) != nil {
		refuse(w, r, http.StatusServiceUnavailable, "There was no time to make the payment. Nothing was paid.")
		return
	}
	p := payment{ID: uuid.Must(uuid.NewV7()).String(), order: o, customer: customer(r)}
	err := s.paymentsJournal.InTx(r.Context(), nil, func(tx *sql.Tx) error {
		if err := p.insert(r.Context(), tx); err != nil {
			return err
		}
		return p.write(w)
	})
	// After ErrAnswered the middleware answers.
	if err != nil && !errors.Is(err, journal.ErrAnswered) {
		slog.Error("payment failed", "err", err)
		refuse(w, r, http.StatusInternalServerError, "The payment failed. Nothing was paid. You can repeat it with the same key.")
	}
}

// insert does nothing if the charge is there: the customer has used a key again after its record had expired, and
// the provider has answered with the charge of the first time.
func (p payment) insert(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `insert into payments (id, customer, amount, currency, receipt) values ($1, $2, $3, $4, $5)
		on conflict (id) do nothing`, p.ID, p.customer, p.Amount, p.Currency, p.Receipt)
	return err
}

// response returns the response of a payment: the same from a handler and from settle.
func (p payment) response() (http.Header, []byte) {
	// Strings and a number always marshal.
	body, _ := json.Marshal(p)
	return http.Header{"Content-Type": {"application/json"}, "Location": {"/payments/" + p.ID}}, append(body, '\n')
}

// write returns an error if not all could be written. A transaction must then be rolled back.
func (p payment) write(w http.ResponseWriter) error {
	header, body := p.response()
	maps.Copy(w.Header(), header)
	w.WriteHeader(http.StatusCreated)
	_, err := w.Write(body)
	return err
}

// refuse frees the key, so that a corrected request may use it again.
func refuse(w http.ResponseWriter, r *http.Request, status int, detail string) {
	// It would fail only after a byte of the response has been sent.
	_ = middleware.FromContext(r.Context()).Discard()
	writeProblem(w, status, detail)
}

// readOrder refuses a request for a payment with 400 if it is malformed, and with 422 if it is well formed but invalid.
func readOrder(w http.ResponseWriter, r *http.Request) (o order, ok bool) {
	switch err := json.NewDecoder(r.Body).Decode(&o); {
	case err != nil:
		refuse(w, r, http.StatusBadRequest, `The body must be JSON like {"amount":1250,"currency":"EUR"}.`)
	case o.Amount < 1 || len(o.Currency) != 3:
		refuse(w, r, http.StatusUnprocessableEntity, "The amount must be positive, and the currency as in ISO 4217.")
	default:
		ok = true
	}
	return o, ok
}

// pause waits as long as the query's delay says, and 10 s at most, so that a client can send a duplicate meanwhile, or kill the process.
func pause(r *http.Request) error {
	delay, _ := time.ParseDuration(r.URL.Query().Get("delay"))
	select {
	case <-time.After(min(delay, 10*time.Second)):
		return nil
	case <-r.Context().Done():
		return r.Context().Err()
	}
}

// showPayments answers with the user's payments, or with one of them. A 404 does not mean that the provider has not charged: it
// may be charging, or the charge is not swept yet. Only a retry of the POST tells.
func (s *service) showPayments(w http.ResponseWriter, r *http.Request) {
	// The JSON of an empty list is [] and not null.
	id, list := r.PathValue("id"), []payment{}
	rows, err := s.db.QueryContext(r.Context(), `select id, amount, currency, receipt from payments
		where customer = $1 and $2 in ('', id) order by id`, customer(r), id)
	for err == nil && rows.Next() {
		var p payment
		err = rows.Scan(&p.ID, &p.Amount, &p.Currency, &p.Receipt)
		list = append(list, p)
	}
	if err == nil {
		err = errors.Join(rows.Err(), rows.Close())
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case err != nil:
		slog.Error("query failed", "err", err)
		writeProblem(w, http.StatusInternalServerError, "The payments cannot be read at the moment.")
	case id == "":
		_ = json.NewEncoder(w).Encode(list)
	case len(list) == 0:
		writeProblem(w, http.StatusNotFound, "No such payment is known. If you have sent it, repeat the POST with the same key.")
	default:
		_ = json.NewEncoder(w).Encode(list[0])
	}
}
