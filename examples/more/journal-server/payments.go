package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware"
)

// payment is a payment that was made.
type payment struct {
	ID string `json:"id"`
	order
}

// order is the body of a request for a payment.
type order struct {
	Amount   int64  `json:"amount"` // in the currency's smallest unit: 1250 with EUR is 12.50 euros
	Currency string `json:"currency"`
}

// createPayment makes a payment. The payment and the record of the response are committed together by InTx: after a
// crash both are there, or neither is.
func (s *service) createPayment(w http.ResponseWriter, r *http.Request) {
	o, delay, refused := readOrder(r)
	if refused != nil {
		refuse(w, r, *refused)
		return
	}
	if err := s.pause(r.Context(), delay); err != nil { // before the transaction, which should be short
		refuse(w, r, refusal{http.StatusServiceUnavailable, "There was no time to make the payment. Nothing was paid."})
		return
	}

	err := s.paymentsJournal.InTx(r.Context(), nil, func(tx *sql.Tx) error {
		p, err := s.insertPayment(r.Context(), tx, customer(r), o)
		if err != nil {
			return err
		}
		w.Header().Set("Location", "/payments/"+p.ID)
		return writeJSON(w, http.StatusCreated, p)
	})
	if err != nil && !errors.Is(err, journal.ErrAnswered) { // which means that the middleware answers
		s.log.Error("payment failed", "err", err)
		refuse(w, r, refusal{http.StatusInternalServerError, "The payment failed. Nothing was paid. You can repeat it with the same key."})
	}
}

func (s *service) insertPayment(ctx context.Context, tx *sql.Tx, customer string, o order) (payment, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return payment{}, err
	}
	p := payment{ID: id.String(), order: o}
	_, err = tx.ExecContext(ctx, s.db.text("insert into payments (id, customer, amount, currency) values ($1, $2, $3, $4)"),
		p.ID, customer, p.Amount, p.Currency)
	return p, err
}

// refusal is why a request is not carried out.
type refusal struct {
	status int
	detail string
}

// refuse frees the key, so that a corrected request may use it again.
func refuse(w http.ResponseWriter, r *http.Request, refused refusal) {
	_ = middleware.FromContext(r.Context()).Discard() // would fail only after a byte of the response has been sent
	writeProblem(w, refused.status, refused.detail)
}

const selectPayments = "select id, amount, currency from payments where customer = $1"

// listPayments answers with the user's payments, the oldest first.
func (s *service) listPayments(w http.ResponseWriter, r *http.Request) {
	list, err := s.payments(r.Context(), selectPayments+" order by id", customer(r))
	if err != nil {
		s.fail(w, err)
		return
	}
	_ = writeJSON(w, http.StatusOK, list)
}

// showPayment answers with one of the user's payments.
func (s *service) showPayment(w http.ResponseWriter, r *http.Request) {
	list, err := s.payments(r.Context(), selectPayments+" and id = $2", customer(r), r.PathValue("id"))
	switch {
	case err != nil:
		s.fail(w, err)
	case len(list) == 0:
		writeProblem(w, http.StatusNotFound, "You have made no such payment.")
	default:
		_ = writeJSON(w, http.StatusOK, list[0])
	}
}

// payments returns the payments that a query finds. The slice is never nil, so that its JSON is [] and not null.
func (s *service) payments(ctx context.Context, query string, args ...any) ([]payment, error) {
	rows, err := s.db.QueryContext(ctx, s.db.text(query), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := []payment{}
	for rows.Next() {
		var p payment
		if err := rows.Scan(&p.ID, &p.Amount, &p.Currency); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, rows.Err()
}

// fail answers a request that reads and could not be carried out.
func (s *service) fail(w http.ResponseWriter, err error) {
	s.log.Error("query failed", "err", err)
	writeProblem(w, http.StatusInternalServerError, "The payments cannot be read at the moment.")
}

const (
	maxAmount = 1_000_000_000
	maxDelay  = 10 * time.Second
)

var currency = regexp.MustCompile(`^[A-Z]{3}$`)

// readOrder reads and validates a request for a payment. It is refused with 400 if it is malformed, and with 422 if it
// is well formed but invalid. The delay gives a client time to send a duplicate.
func readOrder(r *http.Request) (o order, delay time.Duration, refused *refusal) {
	delay, err := time.ParseDuration(cmp.Or(r.URL.Query().Get("delay"), "0s"))
	if err != nil || delay < 0 || delay > maxDelay {
		return o, 0, &refusal{http.StatusBadRequest, fmt.Sprintf("The delay must be a time between 0s and %v, like 1.5s.", maxDelay)}
	}
	body := json.NewDecoder(r.Body)
	body.DisallowUnknownFields()
	err = body.Decode(&o)
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrongType):
		return o, 0, &refusal{http.StatusUnprocessableEntity, "The amount must be a whole number, and the currency a string."}
	case err != nil:
		return o, 0, &refusal{http.StatusBadRequest, `The body must be JSON like {"amount":1250,"currency":"EUR"}.`}
	case o.Amount < 1 || o.Amount > maxAmount:
		return o, 0, &refusal{http.StatusUnprocessableEntity, fmt.Sprintf("The amount must be between 1 and %d.", maxAmount)}
	case !currency.MatchString(o.Currency):
		return o, 0, &refusal{http.StatusUnprocessableEntity, "The currency must be three capital letters, as in ISO 4217."}
	}
	if _, err := body.Token(); err != io.EOF {
		return o, 0, &refusal{http.StatusBadRequest, "There is something after the JSON object."}
	}
	return o, delay, nil
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
