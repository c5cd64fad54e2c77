package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strings"

	"github.com/onceguard/onceguard/middleware"
)

// chargesTable has the charges that the provider has made, as far as this service knows.
const chargesTable = `create table if not exists charges (
  id       text primary key, -- the end of the run's key: see newCharge
  customer text not null,
  amount   bigint not null,
  currency text not null,
  receipt  text not null -- the provider's
)`

// charge is a payment that the provider has made.
type charge struct {
	ID string `json:"id"`
	order
	Receipt  string `json:"receipt"`
	customer string // not in the response
}

// note is what a sweep needs to write the charge of a run that has ended without an answer.
type note struct {
	Customer string `json:"customer"`
	Order    order  `json:"order"`
}

// newCharge returns the charge of the run with this key. Its id is the hash in that key, which every problem response of
// the middleware has at the end of its instance. So a client without an answer knows where its charge is or will be.
func newCharge(key string, n note, receipt string) charge {
	return charge{ID: key[strings.LastIndexByte(key, '}')+1:], order: n.Order, Receipt: receipt, customer: n.Customer}
}

// createCharge charges at the provider. The charge and its record cannot be committed together, so the intent journal
// has stored a row before this handler began. If the process dies, the row remains, and settle finds out what happened.
func (s *service) createCharge(w http.ResponseWriter, r *http.Request) {
	o, delay, refused := readOrder(r)
	if refused != nil {
		refuse(w, r, *refused)
		return
	}
	ctx, run, n := r.Context(), middleware.FromContext(r.Context()), note{customer(r), o}
	if err := s.storeNote(ctx, n); err != nil { // after which the provider must not be called
		s.log.Error("note failed", "err", err)
		refuse(w, r, refusal{http.StatusServiceUnavailable, "Nothing was charged. Repeat the request with the same key."})
		return
	}

	receipt, err := s.provider.charge(ctx, run.Key(), o) // the same key in every run of this request: one charge
	if errors.Is(err, errDeclined) {
		writeProblem(w, http.StatusPaymentRequired, "The payment was declined.") // stored: a retry gets it again
		return
	}
	if err == nil {
		err = s.pause(ctx, delay) // time to kill the process when the charge is made and not written
	}
	if err == nil {
		c := newCharge(run.Key(), n, receipt)
		err = s.chargesJournal.InTx(ctx, nil, func(tx *sql.Tx) error {
			if err := s.insertCharge(ctx, tx, c); err != nil {
				return err
			}
			return c.write(w)
		})
	}
	if err != nil {
		run.Unknown() // the provider may have charged: this response is not stored, and settle finds out
		s.log.Error("charge unknown", "err", err)
		w.Header().Set("Retry-After", "30")
		writeProblem(w, http.StatusServiceUnavailable, "It is not known yet whether you were charged. Repeat the request with the same key.")
	}
}

func (s *service) storeNote(ctx context.Context, n note) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return s.chargesJournal.Note(ctx, text)
}

// insertCharge does nothing if the charge is there: the customer has used a key again after its record had expired, and
// the provider has answered with the charge of the first time.
func (s *service) insertCharge(ctx context.Context, tx *sql.Tx, c charge) error {
	_, err := tx.ExecContext(ctx,
		s.db.text("insert into charges (id, customer, amount, currency, receipt) values ($1, $2, $3, $4, $5) on conflict (id) do nothing"),
		c.ID, c.customer, c.Amount, c.Currency, c.Receipt)
	return err
}

// response returns the response of a charge: the same from the handler and from settle.
func (c charge) response() (http.Header, []byte, error) {
	header := http.Header{"Content-Type": {"application/json"}, "Location": {"/charges/" + c.ID}}
	body, err := json.Marshal(c)
	return header, append(body, '\n'), err
}

func (c charge) write(w http.ResponseWriter) error {
	header, body, err := c.response()
	if err != nil {
		return err
	}
	maps.Copy(w.Header(), header)
	w.WriteHeader(http.StatusCreated)
	_, err = w.Write(body)
	return err
}

const selectCharges = "select id, amount, currency, receipt from charges where customer = $1"

// listCharges answers with the user's charges.
func (s *service) listCharges(w http.ResponseWriter, r *http.Request) {
	list, err := s.findCharges(r.Context(), selectCharges+" order by id", customer(r))
	if err != nil {
		s.fail(w, err)
		return
	}
	_ = writeJSON(w, http.StatusOK, list)
}

// showCharge answers with one of the user's charges. A 404 does not mean that the provider has not charged: it may be
// charging, or the charge is not swept yet. Only a retry of the POST tells.
func (s *service) showCharge(w http.ResponseWriter, r *http.Request) {
	list, err := s.findCharges(r.Context(), selectCharges+" and id = $2", customer(r), r.PathValue("id"))
	switch {
	case err != nil:
		s.fail(w, err)
	case len(list) == 0:
		writeProblem(w, http.StatusNotFound, "No such charge is known. If you have sent it, repeat the POST with the same key.")
	default:
		_ = writeJSON(w, http.StatusOK, list[0])
	}
}

func (s *service) findCharges(ctx context.Context, query string, args ...any) ([]charge, error) {
	rows, err := s.db.QueryContext(ctx, s.db.text(query), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := []charge{} // so that its JSON is [] and not null
	for rows.Next() {
		var c charge
		if err := rows.Scan(&c.ID, &c.Amount, &c.Currency, &c.Receipt); err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, rows.Err()
}
