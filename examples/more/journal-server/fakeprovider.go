package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// cardLimit is the most that the fake provider charges at once. It declines more.
const cardLimit = 100_000

const providerTable = `create table if not exists provider_charges (
  id       text primary key, -- the idempotency key
  receipt  text not null,
  amount   bigint not null,
  currency text not null
)`

// fakeProvider is the API of a payment provider, to try this program without one. A real provider is another company's
// service: nothing that it does can be in a transaction of ours, and so its table is not used outside of this file.
//
//	POST /charges          {"amount":1250,"currency":"EUR"}, Idempotency-Key -> 200 {"receipt":"..."}, the same for the same key
//	GET  /charges?key=KEY  200 {"receipt":"..."}, or 404
//
// It answers 402 if it declines, and 422 if the key belongs to another charge.
type fakeProvider struct {
	db *database
}

// newFakeProvider creates the provider's table if it is missing.
func newFakeProvider(ctx context.Context, db *database) (http.Handler, error) {
	f := &fakeProvider{db}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", f.charge)
	mux.HandleFunc("GET /charges", f.show)
	_, err := db.ExecContext(ctx, db.text(providerTable))
	return mux, err
}

// startFakeProvider serves a fake provider on a loopback port. It returns its URL and what stops it.
func startFakeProvider(ctx context.Context, log *slog.Logger, db *database) (url string, stop func() error, err error) {
	handler, err := newFakeProvider(ctx, db)
	if err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: handler, ReadTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the fake provider has ended", "err", err)
		}
	}()
	stop = func() error {
		err := server.Close()
		<-served
		return err
	}
	return "http://" + listener.Addr().String(), stop, nil
}

func (f *fakeProvider) charge(w http.ResponseWriter, r *http.Request) {
	var o, stored order
	key := r.Header.Get("Idempotency-Key")
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || key == "" {
		http.Error(w, "the key or the order is missing", http.StatusBadRequest)
		return
	}
	if o.Amount > cardLimit {
		http.Error(w, "declined", http.StatusPaymentRequired)
		return
	}
	_, err := f.db.ExecContext(r.Context(),
		f.db.text("insert into provider_charges (id, receipt, amount, currency) values ($1, $2, $3, $4) on conflict (id) do nothing"),
		key, uuid.NewString(), o.Amount, o.Currency)
	var receipt string
	if err == nil {
		receipt, stored, err = f.find(r.Context(), key)
	}
	if err == nil && stored != o {
		http.Error(w, "the key belongs to another charge", http.StatusUnprocessableEntity)
		return
	}
	answerReceipt(w, receipt, err)
}

func (f *fakeProvider) show(w http.ResponseWriter, r *http.Request) {
	receipt, _, err := f.find(r.Context(), r.URL.Query().Get("key"))
	answerReceipt(w, receipt, err)
}

func (f *fakeProvider) find(ctx context.Context, key string) (receipt string, o order, err error) {
	row := f.db.QueryRowContext(ctx, f.db.text("select receipt, amount, currency from provider_charges where id = $1"), key)
	err = row.Scan(&receipt, &o.Amount, &o.Currency)
	return receipt, o, err
}

func answerReceipt(w http.ResponseWriter, receipt string, err error) {
	switch {
	case errors.Is(err, sql.ErrNoRows):
		http.Error(w, "no such charge", http.StatusNotFound)
	case err != nil:
		http.Error(w, "out of order", http.StatusInternalServerError)
	default:
		_ = writeJSON(w, http.StatusOK, map[string]string{"receipt": receipt})
	}
}
