package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
)

const (
	// expireEvery is how often the records are removed whose retention is over.
	expireEvery = 5 * time.Minute

	// sweepEvery is short so that you need not wait. Once a minute is enough for a real service.
	sweepEvery = 5 * time.Second

	// sweepGrace must be longer than a charge can be late: "no such charge" is final only if no request for it can still be
	// on its way. The grace begins when requestTimeout is over, after which a handler's context lets no call begin.
	sweepGrace = 2 * providerTimeout

	// sweepLease must be enough for settle: one question to the provider, and a transaction. If settle fails, it is called
	// again when the lease is over.
	sweepLease = 3 * providerTimeout

	// retention is how long a response is replayed.
	retention = 24 * time.Hour
)

// work expires and sweeps until ctx is done. Any number of instances may do so.
func (s *service) work(ctx context.Context) {
	var jobs sync.WaitGroup
	jobs.Go(func() { s.repeat(ctx, "expire", expireEvery, s.expire) })
	jobs.Go(func() { s.repeat(ctx, "sweep", sweepEvery, s.sweep) })
	jobs.Wait()
}

func (s *service) repeat(ctx context.Context, name string, interval time.Duration, job func(context.Context) error) {
	every := time.NewTicker(interval)
	defer every.Stop()
	for {
		if err := job(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn(name, "err", err)
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// expire removes the records of both journals, which are in one table.
func (s *service) expire(ctx context.Context) error {
	_, err := s.chargesJournal.Expire(ctx)
	return err
}

// sweep settles the runs that have ended without an answer.
func (s *service) sweep(ctx context.Context) error {
	_, err := s.chargesJournal.Sweep(ctx, sweepGrace, sweepLease, s.settle)
	return err
}

// settle asks the provider whether it has charged for a run that has ended without an answer. A run of createPayment, which has a
// row only with -redis none, has never called the provider. So its row is freed, and its transaction can no longer commit.
func (s *service) settle(ctx context.Context, u sqljournal.Unfinished) error {
	receipt, err := s.provider.find(ctx, u.Key)
	switch {
	case errors.Is(err, errNoCharge):
		s.log.Info("settled: a retry runs", "key", u.Key)
		return u.Free(ctx, s.db)
	case err != nil:
		return err // not known yet
	}
	s.log.Info("settled: was charged", "key", u.Key)
	var n note
	if err := json.Unmarshal(u.Note, &n); err != nil {
		return fmt.Errorf("the note of %s: %w", u.Key, err)
	}
	c := newCharge(u.Key, n, receipt)
	header, body, err := c.response()
	if err != nil {
		return err
	}
	record, err := s.charging.Record(u.Key, middleware.Responded(http.StatusCreated, header, body))
	if err != nil {
		return err
	}
	return s.chargesJournal.InTx(ctx, nil, func(tx *sql.Tx) error { // outside of a run: just a transaction
		if err := s.insertCharge(ctx, tx, c); err != nil {
			return err
		}
		return u.Done(ctx, tx, retention, record) // a retry gets the response
	})
}
