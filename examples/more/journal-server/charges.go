package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
)

// note is what a sweep needs to write the charge of a run that has ended without an answer.
type note struct {
	Customer string `json:"customer"`
	Order    order  `json:"order"`
}

// newCharge returns the charge of the run with this key. Its id is the hash in that key, which every problem response of
// the middleware has at the end of its instance. So a client without an answer knows where its charge is or will be.
func newCharge(key string, n note, receipt string) payment {
	return payment{ID: key[strings.LastIndexByte(key, '}')+1:], order: n.Order, Receipt: receipt, customer: n.Customer}
}

// createCharge charges at the provider. The charge and its record cannot be committed together, so the intent journal
// has stored a row before this handler began. If the process dies, the row remains, and settle finds out what happened.
func (s *service) createCharge(w http.ResponseWriter, r *http.Request) {
	o, ok := readOrder(w, r)
	if !ok {
		return
	}
	ctx, run, n := r.Context(), middleware.FromContext(r.Context()), note{customer(r), o}
	// Strings and a number always marshal.
	text, _ := json.Marshal(n)
	// After an error the provider must not be called.
	if err := s.chargesJournal.Note(ctx, text); err != nil {
		slog.Error("note failed", "err", err)
		refuse(w, r, http.StatusServiceUnavailable, "Nothing was charged. Repeat the request with the same key.")
		return
	}

	// The key is the same in every run of this request: one charge.
	receipt, err := s.provider.charge(ctx, run.Key(), o)
	if errors.Is(err, errDeclined) {
		// It is stored: a retry gets it again.
		writeProblem(w, http.StatusPaymentRequired, "The payment was declined.")
		return
	}
	if err == nil {
		// There is time to kill the process when the charge is made and not written.
		err = pause(r)
	}
	if err == nil {
		err = s.chargesJournal.InTx(ctx, nil, func(tx *sql.Tx) error {
			c := newCharge(run.Key(), n, receipt)
			if err := c.insert(ctx, tx); err != nil {
				return err
			}
			return c.write(w)
		})
	}
	if err != nil {
		// The provider may have charged: this response is not stored, and settle finds out.
		run.Unknown()
		slog.Error("charge unknown", "err", err)
		w.Header().Set("Retry-After", "30")
		writeProblem(w, http.StatusServiceUnavailable, "It is not known yet whether you were charged. Repeat the request with the same key.")
	}
}

const (
	// sweepEvery is short so that you need not wait. Once a minute is enough for a real service.
	sweepEvery = 5 * time.Second

	// sweepGrace must be longer than a charge can be late: "no such charge" is final only if no request for it can still be
	// on its way. The grace begins when requestTimeout is over, after which a handler's context lets no call go on.
	sweepGrace = 10 * time.Second

	// sweepLease must be enough for settle: one question to the provider, and a transaction. If settle fails, it is called
	// again when the lease is over.
	sweepLease = 15 * time.Second

	// retention is how long a response is replayed.
	retention = 24 * time.Hour
)

// work settles the runs that have ended without an answer, and removes the records of both journals whose retention is over,
// until ctx is done. Any number of instances may do so.
func (s *service) work(ctx context.Context) {
	every := time.NewTicker(sweepEvery)
	defer every.Stop()
	for ctx.Err() == nil {
		_, swept := s.chargesJournal.Sweep(ctx, sweepGrace, sweepLease, s.settle)
		_, expired := s.chargesJournal.Expire(ctx)
		if err := errors.Join(swept, expired); err != nil && ctx.Err() == nil {
			slog.Warn("sweep", "err", err)
		}
		select {
		case <-every.C:
		case <-ctx.Done():
		}
	}
}

// settle asks the provider whether it has charged for a run that has ended without an answer. A run of createPayment, which has a
// row only with -redis none, has never called the provider. So its row is freed, and its transaction can no longer commit.
func (s *service) settle(ctx context.Context, u sqljournal.Unfinished) error {
	receipt, err := s.provider.find(ctx, u.Key)
	switch {
	case errors.Is(err, errNoCharge):
		slog.Info("settled: a retry runs", "key", u.Key)
		return u.Free(ctx, s.db)
	case err != nil:
		return err // not known yet
	}
	slog.Info("settled: was charged", "key", u.Key)
	var n note
	if err := json.Unmarshal(u.Note, &n); err != nil {
		return fmt.Errorf("the note of %s: %w", u.Key, err)
	}
	c := newCharge(u.Key, n, receipt)
	header, body := c.response()
	record, err := s.charging.Record(u.Key, middleware.Responded(http.StatusCreated, header, body))
	if err != nil {
		return err
	}
	// Outside of a run this is just a transaction.
	return s.chargesJournal.InTx(ctx, nil, func(tx *sql.Tx) error {
		if err := c.insert(ctx, tx); err != nil {
			return err
		}
		// A retry gets the response.
		return u.Done(ctx, tx, retention, record)
	})
}
