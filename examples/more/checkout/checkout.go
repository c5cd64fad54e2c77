package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/journal"
)

// checkout is a checkout session.
type checkout struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	cart
	Order *order `json:"order,omitempty"` // of a completed one
}

// cart is what a request may change. Other members of the body are accepted, and are part of what makes two requests the
// same.
type cart struct {
	Items    []item `json:"line_items"`
	Currency string `json:"currency"`
}

type item struct {
	Item struct {
		ID string `json:"id"`
	} `json:"item"`
	Quantity float64 `json:"quantity"`
}

// order is what a completed checkout has bought.
type order struct {
	ID       string `json:"id"`
	Checkout string `json:"checkout_session_id"`
	URL      string `json:"permalink_url"`
}

// refusal is why a request is not carried out.
type refusal struct {
	status        int
	code, message string
}

// Error returns the message for the client.
func (r refusal) Error() string { return r.message }

// readCart reads the body, which may be empty.
func readCart(r *http.Request) (c cart, err error) {
	if err = json.NewDecoder(r.Body).Decode(&c); errors.Is(err, io.EOF) {
		return c, nil
	}
	wrong := func(i item) bool { return i.Item.ID == "" || i.Quantity < 1 }
	if err != nil || c.Items != nil && len(c.Items) == 0 || slices.ContainsFunc(c.Items, wrong) {
		err = refusal{http.StatusBadRequest, "invalid",
			`The body must be JSON like {"line_items":[{"item":{"id":"tea"},"quantity":1}],"currency":"eur"}.`}
	}
	return c, err
}

// apply changes a checkout, or makes a new one.
type apply func(s *shop, r *http.Request, tx *sql.Tx, c *checkout, sent cart) error

func create(s *shop, _ *http.Request, _ *sql.Tx, c *checkout, sent cart) error {
	if sent.Items == nil || sent.Currency == "" {
		return refusal{http.StatusBadRequest, "missing", "A checkout needs line_items and a currency."}
	}
	*c = checkout{ID: newID("cs"), Status: s.ready, cart: sent}
	return nil
}

// update replaces the parts of the checkout that the body has.
func update(_ *shop, _ *http.Request, _ *sql.Tx, c *checkout, sent cart) error {
	if sent.Items != nil {
		c.Items = sent.Items
	}
	if sent.Currency != "" {
		c.Currency = sent.Currency
	}
	return nil
}

// complete makes an order. A real shop would also leave a charge for a worker in this transaction.
func complete(s *shop, r *http.Request, tx *sql.Tx, c *checkout, _ cart) error {
	id := newID("ord")
	c.Status, c.Order = "completed", &order{id, c.ID, "http://" + r.Host + s.sessions + "/" + c.ID}
	_, err := tx.ExecContext(r.Context(), "insert into orders (id, identity, checkout) values ($1, $2, $3)",
		id, identityOf(r.Context()), c.ID)
	return err
}

func cancel(_ *shop, _ *http.Request, _ *sql.Tx, c *checkout, _ cart) error {
	c.Status = "canceled"
	return nil
}

// change applies a change in a transaction, in which the response is stored too.
func (s *shop) change(status int, f apply) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sent, err := readCart(r)
		if err == nil {
			// It is before the transaction, which should be short.
			err = s.pause(r)
		}
		if err == nil {
			err = s.journal.InTx(r.Context(), nil, func(tx *sql.Tx) error {
				var c checkout
				if id := r.PathValue("id"); id != "" {
					if c, err = find(r.Context(), tx.QueryRowContext, id); err != nil {
						return err
					}
				}
				if c.Status == "completed" || c.Status == "canceled" {
					return refusal{s.ended, "session_ended", "The checkout is " + c.Status + "."}
				}
				if err := f(s, r, tx, &c, sent); err != nil {
					return err
				}
				return s.answer(w, r, tx, status, c)
			})
		}
		// After ErrAnswered the middleware answers.
		if err != nil && !errors.Is(err, journal.ErrAnswered) {
			s.fail(w, err)
		}
	}
}

// answer stores and sends a checkout. After an error the transaction is rolled back.
func (s *shop) answer(w http.ResponseWriter, r *http.Request, tx *sql.Tx, status int, c checkout) error {
	content, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(r.Context(), `insert into checkouts (id, identity, content) values ($1, $2, $3)
		on conflict (id) do update set content = $3`, c.ID, identityOf(r.Context()), string(content))
	if err != nil {
		return err
	}
	w.Header().Set("Location", s.sessions+"/"+c.ID)
	return writeJSON(w, status, c)
}

// fail answers a request that was not carried out.
func (s *shop) fail(w http.ResponseWriter, err error) {
	refused := refusal{http.StatusInternalServerError, "internal", "Nothing was done. You can repeat the request with the same key."}
	if !errors.As(err, &refused) {
		log.Print(err)
	}
	answer := map[string]string{"code": refused.code, s.message: refused.message}
	if s.message == "message" { // of ACP
		answer["type"] = "invalid_request"
	}
	_ = writeJSON(w, refused.status, answer)
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(v)
}

// newID returns an id that is greater than earlier ones.
func newID(prefix string) string { return prefix + "_" + uuid.Must(uuid.NewV7()).String() }

// querier is the QueryRowContext of a *sql.DB or a *sql.Tx.
type querier func(ctx context.Context, query string, args ...any) *sql.Row

// find finds a checkout of the identity.
func find(ctx context.Context, query querier, id string) (c checkout, err error) {
	var content []byte
	row := query(ctx, "select content from checkouts where id = $1 and identity = $2", id, identityOf(ctx))
	if err = row.Scan(&content); errors.Is(err, sql.ErrNoRows) {
		return c, refusal{http.StatusNotFound, "session_not_found", "There is no such checkout."}
	}
	if err == nil {
		err = json.Unmarshal(content, &c)
	}
	return c, err
}

func (s *shop) show(w http.ResponseWriter, r *http.Request) {
	c, err := find(r.Context(), s.db.QueryRowContext, r.PathValue("id"))
	if err != nil {
		s.fail(w, err)
		return
	}
	_ = writeJSON(w, http.StatusOK, c)
}

// list answers with the ids of the identity's rows in a table.
func (s *shop) list(table string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var ids string
		row := s.db.QueryRowContext(r.Context(), "select json_group_array(id) from "+table+" where identity = $1", identityOf(r.Context()))
		if err := row.Scan(&ids); err != nil {
			s.fail(w, err)
			return
		}
		_ = writeJSON(w, http.StatusOK, json.RawMessage(ids))
	}
}

// pause waits as long as the query's delay says, and 10 s at most.
func pause(r *http.Request) error {
	delay, _ := time.ParseDuration(r.URL.Query().Get("delay"))
	select {
	case <-time.After(min(delay, 10*time.Second)):
		return nil
	case <-r.Context().Done():
		return r.Context().Err()
	}
}
