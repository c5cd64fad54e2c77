package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/onceguard/onceguard/journal"
)

// checkout is a checkout session.
type checkout struct {
	ID       string          `json:"id"`
	Status   string          `json:"status"`
	Items    json.RawMessage `json:"line_items"`
	Currency string          `json:"currency"`
	Order    *order          `json:"order,omitempty"` // of a completed one
}

// order is what a completed checkout has bought.
type order struct {
	ID       string `json:"id"`
	Checkout string `json:"checkout_session_id"`
	URL      string `json:"permalink_url"`
}

const completed, canceled = "completed", "canceled"

// refusal is why a request is not carried out.
type refusal struct {
	status        int
	code, message string
}

func (r refusal) Error() string { return r.message }

var errNotFound = refusal{http.StatusNotFound, "session_not_found", "There is no such checkout."}

// cart is what a request may change. Other members of the body are accepted, and are part of what makes two requests the
// same.
type cart struct {
	Items    json.RawMessage `json:"line_items"`
	Currency string          `json:"currency"`
}

// readCart reads the body, which may be empty.
func readCart(r *http.Request) (c cart, err error) {
	malformed := refusal{http.StatusBadRequest, "invalid",
		`The body must be JSON like {"line_items":[{"item":{"id":"tea"},"quantity":1}],"currency":"eur"}.`}
	text, err := io.ReadAll(r.Body)
	if err != nil || len(text) == 0 {
		return c, err
	}
	if json.Unmarshal(text, &c) != nil {
		return c, malformed
	}
	var items []struct {
		Item     struct{ ID string }
		Quantity float64
	}
	if c.Items != nil && (json.Unmarshal(c.Items, &items) != nil || len(items) == 0) {
		return c, malformed
	}
	for _, i := range items {
		if i.Item.ID == "" || i.Quantity < 1 {
			return c, malformed
		}
	}
	return c, nil
}

// create makes a checkout.
func (s *shop) create(w http.ResponseWriter, r *http.Request) {
	s.answer(w, s.inTx(r, func(tx *sql.Tx, sent cart) error {
		if sent.Items == nil || sent.Currency == "" {
			return refusal{http.StatusBadRequest, "missing", "A checkout needs line_items and a currency."}
		}
		c := checkout{ID: newID("cs"), Status: s.ready, Items: sent.Items, Currency: sent.Currency}
		if err := insertCheckout(r.Context(), tx, identityOf(r.Context()), &c); err != nil {
			return err
		}
		w.Header().Set("Location", s.sessions+"/"+c.ID)
		return writeJSON(w, http.StatusCreated, c)
	}))
}

// update replaces the parts of the checkout that the body has.
func (s *shop) update(w http.ResponseWriter, r *http.Request) {
	s.change(w, r, func(_ *sql.Tx, c *checkout, sent cart) error {
		if sent.Items != nil {
			c.Items = sent.Items
		}
		if sent.Currency != "" {
			c.Currency = sent.Currency
		}
		return nil
	})
}

// complete makes an order. A real shop would also leave a charge for a worker in this transaction.
func (s *shop) complete(w http.ResponseWriter, r *http.Request) {
	s.change(w, r, func(tx *sql.Tx, c *checkout, _ cart) error {
		id := newID("ord")
		c.Status, c.Order = completed, &order{id, c.ID, "http://" + r.Host + s.sessions + "/" + c.ID}
		return insertOrder(r.Context(), tx, identityOf(r.Context()), c.Order)
	})
}

func (s *shop) cancel(w http.ResponseWriter, r *http.Request) {
	s.change(w, r, func(_ *sql.Tx, c *checkout, _ cart) error {
		c.Status = canceled
		return nil
	})
}

// change changes a checkout that has not ended.
func (s *shop) change(w http.ResponseWriter, r *http.Request, apply func(tx *sql.Tx, c *checkout, sent cart) error) {
	s.answer(w, s.inTx(r, func(tx *sql.Tx, sent cart) error {
		c, err := findCheckout(r.Context(), tx, identityOf(r.Context()), r.PathValue("id"))
		if err != nil {
			return err
		}
		if c.Status == completed || c.Status == canceled {
			return refusal{s.ended, "session_ended", fmt.Sprintf("The checkout is %s.", c.Status)}
		}
		if err := apply(tx, &c, sent); err != nil {
			return err
		}
		if err := updateCheckout(r.Context(), tx, &c); err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, c)
	}))
}

// inTx reads the body and calls f in a transaction, in which the response is stored too.
func (s *shop) inTx(r *http.Request, f func(tx *sql.Tx, sent cart) error) error {
	sent, err := readCart(r)
	if err != nil {
		return err
	}
	if err := s.delay(r); err != nil { // before the transaction, which should be short
		return err
	}
	return s.journal.InTx(r.Context(), nil, func(tx *sql.Tx) error { return f(tx, sent) })
}

// answer answers a request whose transaction was not committed. After journal.ErrAnswered the middleware answers.
func (s *shop) answer(w http.ResponseWriter, err error) {
	var refused refusal
	switch {
	case err == nil, errors.Is(err, journal.ErrAnswered):
	case errors.As(err, &refused):
		_ = writeJSON(w, refused.status, s.failure(refused.code, refused.message))
	default:
		s.log.Error("request failed", "err", err)
		_ = writeJSON(w, http.StatusInternalServerError, s.failure("internal", "Nothing was done. You can repeat the request with the same key."))
	}
}

func (s *shop) show(w http.ResponseWriter, r *http.Request) {
	c, err := findCheckout(r.Context(), s.db, identityOf(r.Context()), r.PathValue("id"))
	if err != nil {
		s.answer(w, err)
		return
	}
	_ = writeJSON(w, http.StatusOK, c)
}

// list answers with the identity's checkouts, and listOrders with its orders.
func (s *shop) list(w http.ResponseWriter, r *http.Request) {
	s.writeIDs(w, r, "select id from checkouts where identity = $1 order by id")
}

func (s *shop) listOrders(w http.ResponseWriter, r *http.Request) {
	s.writeIDs(w, r, "select id from orders where identity = $1 order by id")
}

func (s *shop) writeIDs(w http.ResponseWriter, r *http.Request, query string) {
	ids, err := selectIDs(r.Context(), s.db, query, identityOf(r.Context()))
	if err != nil {
		s.answer(w, err)
		return
	}
	_ = writeJSON(w, http.StatusOK, ids)
}
