// The journal: a handler's transaction alone, under the middleware, and with a journal, all in one
// database.

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
)

const journalCommand = "journal"

func parseJournal(s session) (compareConfig, error) {
	return parseRounds(s, "bench journal", compareConfig{rounds: 9, time: time.Second, callers: []int{1, 64}})
}

// journal measures on one server after the other, and writes the tables of all.
func journal(ctx context.Context, s session, cfg compareConfig) error {
	head, suite := about(ctx), journalSuite()
	var columns []column
	for _, program := range databases() {
		of, description, err := journalOn(ctx, s, cfg, suite, program)
		if err != nil {
			return err
		}
		head += description
		columns = append(columns, of...)
	}
	if columns == nil {
		return errors.New("no database server is installed")
	}
	fmt.Fprintf(s.out, "%s- %s of %v; medians (and quartiles); bodies of %s; not pinned\n"+
		"- Pools: as many connections to Redis and to the database as there are callers\n",
		head, plural(cfg.rounds, "round"), cfg.time, size(bodySize))
	return suite.writeTables(s.out, columns)
}

// journalOn measures on the server of that program, and describes it.
func journalOn(ctx context.Context, s session, cfg compareConfig, suite suite, program string) (
	columns []column, description string, err error,
) {
	d, err := startDatabase(ctx, program)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	settings, err := d.describe(ctx)
	if err != nil {
		return nil, "", err
	}
	columns, err = measureColumns(ctx, s, cfg, suite, d)
	return columns, "- " + d.name + ": " + settings + "\n", err
}

// payment is the group of the journal.
const payment = "payment"

// journalSuite is that of the journal.
func journalSuite() suite {
	return suite{
		contenders: []contender{
			{group: payment, name: "alone", label: "the transaction alone", setUp: payments(plainly, unprotectedly, 0, 0)},
			{group: payment, name: "redis", label: "Redis only", setUp: payments(plainly, protectedly, 1, 0)},
			{
				group: payment, name: "transactional", label: "transactional journal",
				setUp: payments(inJournal(sqljournal.Transactional), protectedly, 1, 1),
			},
			{
				group: payment, name: "intent", label: "intent journal",
				setUp: payments(inJournal(sqljournal.Intent), protectedly, 1, 1),
			},
		},
		groups: []group{{payment, "First request with a payment"}},
		comparisons: []comparison{
			{"Redis only / the transaction alone", "payment/redis payment/alone"},
			{"transactional journal / the transaction alone", "payment/transactional payment/alone"},
			{"intent journal / the transaction alone", "payment/intent payment/alone"},
			{"transactional journal / Redis only", "payment/transactional payment/redis"},
			{"intent journal / Redis only", "payment/intent payment/redis"},
		},
		rate:   rateUnit{"answers a second", 1, "%.0f"},
		warmUp: 3 * time.Second, // PostgreSQL plans a statement afresh for the first five times in each connection
	}
}

// inTx runs f in a transaction.
type inTx func(ctx context.Context, f func(*sql.Tx) error) error

// transactor returns how the handler runs its transaction in the database, and what the middleware needs for that.
type transactor func(d *database) (inTx, []middleware.Option)

func plainly(d *database) (inTx, []middleware.Option) {
	return func(ctx context.Context, f func(*sql.Tx) error) error {
		tx, err := d.pool.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := f(tx); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}, nil
}

func inJournal(newJournal func(*sql.DB, string, ...sqljournal.Option) *sqljournal.Journal) transactor {
	return func(d *database) (inTx, []middleware.Option) {
		j := newJournal(d.pool, namespace, d.options...)
		return func(ctx context.Context, f func(*sql.Tx) error) error { return j.InTx(ctx, nil, f) },
			[]middleware.Option{middleware.WithJournal(j)}
	}
}

// protector puts the middleware before a handler, or does not.
type protector func(conditions, http.Handler, []middleware.Option) (h http.Handler, closeStore func() error)

func unprotectedly(_ conditions, h http.Handler, _ []middleware.Option) (http.Handler, func() error) {
	return h, closeNothing
}

func protectedly(c conditions, h http.Handler, opts []middleware.Option) (http.Handler, func() error) {
	protect, closeStore := protection(c, opts...)
	return protect(h), closeStore
}

// payments are requests with fresh keys to a handler that inserts a payment. Each leaves so many keys in Redis and rows in
// the journal.
func payments(transact transactor, protect protector, keys, rows int) setUp {
	open := func(_ context.Context, c conditions, s *service) (*site, error) {
		c.database.allow(c.callers)
		in, opts := transact(c.database)
		h, closeStore := protect(c, &cashier{service: s, inTx: in, statement: c.database.insertPayment}, opts)
		return &site{newVisitor: func() visitor { return newCall(h, c.body).visit }, close: closeStore}, nil
	}
	return onSite(open, func(w *web) subject {
		w.database.newKeys(w.keys)
		var before rowMark
		s := w.fresh()
		s.begin = func(ctx context.Context) (err error) {
			before, err = w.database.markRows(ctx)
			return err
		}
		s.end = func(ctx context.Context, answers []int) error {
			n := sum(answers)
			return errors.Join(w.wantRuns(n), w.server.wantKeys(ctx, keys*n), w.database.wantRows(ctx, before, n, rows*n))
		}
		return s
	})
}

// cashier inserts a payment, and answers in the transaction as the service does.
type cashier struct {
	service   *service
	inTx      inTx
	statement string // that inserts
}

func (c *cashier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := c.inTx(r.Context(), func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(r.Context(), c.statement, "42", 1250, "EUR", r.Header.Get(idempotencyKey)); err != nil {
			return err
		}
		c.service.ServeHTTP(w, r)
		return nil
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
