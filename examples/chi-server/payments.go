package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
)

// payment is a payment that was made.
type payment struct {
	ID string `json:"id"`
	paymentOrder
}

// paymentOrder is the body of a request for a payment.
type paymentOrder struct {
	Amount   int64  `json:"amount"` // in the currency's smallest unit: 1250 with EUR is 12.50 euros
	Currency string `json:"currency"`
}

const maxAmount = 1_000_000_000

// paymentsAPI makes payments: it only records them.
type paymentsAPI struct {
	made history[payment]
}

// create makes a payment.
func (p *paymentsAPI) create(w http.ResponseWriter, r *http.Request) {
	delay, ok := parseDelay(r.URL.Query().Get("delay"))
	if !ok {
		writeProblem(w, http.StatusBadRequest, fmt.Sprintf("The delay must be a time between 0s and %v, like 1.5s.", maxDelay))
		return
	}
	order, refusal := readOrder(r.Body)
	if refusal != nil {
		writeProblem(w, refusal.status, refusal.detail)
		return
	}
	if !waitOrDiscard(r.Context(), delay) {
		writeProblem(w, http.StatusServiceUnavailable, "There was no time to make the payment. Nothing was paid.")
		return
	}
	made := payment{ID: uuid.NewString(), paymentOrder: order}
	p.made.add(userID(r.Context()), made.ID, made)
	w.Header().Set("Location", "/payments/"+made.ID)
	writeJSON(w, http.StatusCreated, made)
}

// list answers with the user's payments, the oldest first.
func (p *paymentsAPI) list(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, p.made.of(userID(r.Context())))
}

// show answers with one of the user's payments.
func (p *paymentsAPI) show(w http.ResponseWriter, r *http.Request) {
	made, ok := p.made.find(userID(r.Context()), chi.URLParam(r, "id"))
	if !ok {
		writeProblem(w, http.StatusNotFound, "You have made no such payment.")
		return
	}
	writeJSON(w, http.StatusOK, made)
}

// refusal is why an order is refused: 400 if it is malformed, 422 if it is well formed but invalid.
type refusal struct {
	status int
	detail string
}

var currency = regexp.MustCompile(`^[A-Z]{3}$`)

// readOrder decodes and validates an order.
func readOrder(body io.Reader) (paymentOrder, *refusal) {
	var order paymentOrder
	in := json.NewDecoder(body)
	in.DisallowUnknownFields()
	err := in.Decode(&order)
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrongType):
		return order, &refusal{http.StatusUnprocessableEntity, "The amount must be a whole number, and the currency a string."}
	case err != nil:
		return order, &refusal{http.StatusBadRequest, `The body must be JSON like {"amount":1250,"currency":"EUR"}.`}
	}
	if _, err := in.Token(); err != io.EOF {
		return order, &refusal{http.StatusBadRequest, "There is something after the JSON object."}
	}
	switch {
	case order.Amount < 1 || order.Amount > maxAmount:
		return order, &refusal{http.StatusUnprocessableEntity, fmt.Sprintf("The amount must be between 1 and %d.", maxAmount)}
	case !currency.MatchString(order.Currency):
		return order, &refusal{http.StatusUnprocessableEntity, "The currency must be three capital letters, as in ISO 4217."}
	}
	return order, nil
}
