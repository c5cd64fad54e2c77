package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
)

// payment is a payment that was made. A request has no ID.
type payment struct {
	ID string `json:"id"`
	// In the currency's smallest unit: 1250 with EUR is 12.50 euros.
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// createPayment makes a payment: it only records it.
func createPayment(made *ledger[payment]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var p payment
		switch err := json.NewDecoder(r.Body).Decode(&p); {
		case err != nil:
			writeProblem(w, http.StatusBadRequest, `The body must be JSON like {"amount":1250,"currency":"EUR"}.`)
			return
		case p.Amount < 1 || len(p.Currency) != 3:
			writeProblem(w, http.StatusUnprocessableEntity, "The amount must be positive, and the currency as in ISO 4217.")
			return
		case !delay(r):
			writeProblem(w, http.StatusServiceUnavailable, "There was no time to make the payment. Nothing was paid.")
			return
		}
		p.ID = uuid.NewString()
		made.add(user(r.Context()), p)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/payments/"+p.ID)
		w.WriteHeader(http.StatusCreated)
		// It fails if the client has disconnected.
		_ = json.NewEncoder(w).Encode(p)
	}
}

// showPayments answers with the user's payments, the oldest first, or with one of them.
func showPayments(made *ledger[payment]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		list, id := made.of(user(r.Context())), chi.URLParam(r, "id")
		var answer any = list
		if id != "" {
			i := slices.IndexFunc(list, func(p payment) bool { return p.ID == id })
			if i < 0 {
				writeProblem(w, http.StatusNotFound, "You have made no such payment.")
				return
			}
			answer = list[i]
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}
}

// ledger has what was made for each user, in memory. A real service has a database.
type ledger[T any] struct {
	mu   sync.Mutex
	made map[string][]T
}

func (l *ledger[T]) add(user string, what T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made == nil {
		l.made = map[string][]T{}
	}
	l.made[user] = append(l.made[user], what)
}

// of returns what was made for a user. It is never nil, so that its JSON is [] and not null.
func (l *ledger[T]) of(user string) []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]T{}, l.made[user]...)
}
