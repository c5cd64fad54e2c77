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

// journal measures on one server after the other, and writes the tables of all.
func journal(ctx context.Context, s session) error {
	cfg, err := parseRounds(s, "bench journal", compareConfig{rounds: 9, time: time.Second, callers: []int{1, 64}})
	if err != nil {
		return err
	}
	head, suite := about(ctx), journalSuite()
	var columns []column
	for _, program := range databases() {
		of, err := journalOn(ctx, s, cfg, suite, program)
		if err != nil {
			return err
		}
		columns = append(columns, of...)
	}
	if columns == nil {
		return errors.New("no database server is installed")
	}
	fmt.Fprintf(s.out, "%s- %s of %v; medians (and quartiles); bodies of %s; not pinned; databases with their defaults\n"+
		"- Pools: as many connections to Redis and to the database as there are callers\n",
		head, plural(cfg.rounds, "round"), cfg.time, "1 KiB")
	suite.writeTables(s.out, columns)
	return nil
}

// journalOn measures on the server of that program.
func journalOn(ctx context.Context, s session, cfg compareConfig, suite suite, program string) (columns []column, err error) {
	d, err := startDatabase(ctx, program)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	return measureColumns(ctx, s, cfg, suite, d)
}

// payment is the group of the journal.
const payment = "payment"

// journalSuite is that of the journal.
func journalSuite() suite {
	return suite{
		contenders: []contender{
			{group: payment, name: "alone", label: "the transaction alone", setUp: payments(nil, false)},
			{group: payment, name: "redis", label: "Redis only", setUp: payments(nil, true)},
			{group: payment, name: "transactional", label: "transactional journal", setUp: payments(sqljournal.Transactional, true)},
			{group: payment, name: "intent", label: "intent journal", setUp: payments(sqljournal.Intent, true)},
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

func (d *database) inTx(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := d.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// payments are requests with fresh keys to a handler that inserts a payment: in a transaction of its own or, unless newJournal
// is nil, in one of that journal; alone or under onceguard, which leaves a key in Redis for each.
func payments(newJournal func(*sql.DB, string, ...sqljournal.Option) *sqljournal.Journal, protected bool) setUp {
	keys, rows := 0, 0 // for each request
	if protected {
		keys = 1
	}
	if newJournal != nil {
		rows = 1
	}
	open := func(_ context.Context, c conditions, s *service) (*site, error) {
		c.database.allow(c.callers)
		in, closeStore := c.database.inTx, closeNothing
		var opts []middleware.Option
		if newJournal != nil {
			j := newJournal(c.database.pool, namespace, c.database.options...)
			in = func(ctx context.Context, f func(*sql.Tx) error) error { return j.InTx(ctx, nil, f) }
			opts = append(opts, middleware.WithJournal(j))
		}
		var h http.Handler = &cashier{service: s, inTx: in, statement: c.database.insertPayment}
		if protected {
			var protect func(http.Handler) http.Handler
			protect, closeStore = protection(c, opts...)
			h = protect(h)
		}
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
