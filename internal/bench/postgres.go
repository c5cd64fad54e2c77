// The PostgreSQL server of the journal, and what is checked in it.

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/onceguard/onceguard/internal/pgtest"
	"github.com/onceguard/onceguard/sqljournal"
)

// postgres is a server with a table of payments and a journal. Rows stay: after a TRUNCATE every connection would plan its
// statements again, and no journal is as small in production.
type postgres struct {
	process  *pgtest.Server
	pool     *sql.DB // for what is measured and, while nothing is, for checks
	keySpace int     // the last one that was given away
}

// insertPayment is the handler's effect.
const insertPayment = `insert into payments (customer, amount, currency, idempotency_key) values ($1, $2, $3, $4)`

const paymentsTable = `
create table payments (
  id bigint generated always as identity primary key,
  customer text not null, amount bigint not null, currency text not null, idempotency_key text not null,
  paid_at timestamptz not null default now());`

// startPostgres returns a server whose tables are empty.
func startPostgres(ctx context.Context) (*postgres, error) {
	process, err := pgtest.Start()
	if err != nil {
		return nil, fmt.Errorf("starting PostgreSQL: %w", err)
	}
	p := &postgres{process: process}
	if p.pool, err = sql.Open("pgx", process.URL(process.Addr(), "public")); err == nil {
		_, err = p.pool.ExecContext(ctx, paymentsTable+sqljournal.Schema(sqljournal.DialectPostgreSQL))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("preparing PostgreSQL: %w", err), p.stop())
	}
	return p, nil
}

// allow lets the pool have so many connections, which stay open.
func (p *postgres) allow(connections int) {
	p.pool.SetMaxOpenConns(connections)
	p.pool.SetMaxIdleConns(connections)
}

// stop ends the server and removes what it has stored.
func (p *postgres) stop() error {
	var err error
	if p.pool != nil {
		err = p.pool.Close()
	}
	return errors.Join(err, p.process.Close())
}

// newKeys moves keys to a part of the sequence that nobody else has.
func (p *postgres) newKeys(keys []keys) {
	p.keySpace++
	for i := range keys {
		keys[i].next = p.keySpace << 24
	}
}

// rowMark is what the tables have at a moment: later rows have higher values. All responses are kept equally long.
type rowMark struct{ payment, expiry int64 }

func (p *postgres) mark(ctx context.Context) (m rowMark, err error) {
	err = p.pool.QueryRowContext(ctx, `
select coalesce((select max(id) from payments), 0),
  coalesce((select (extract(epoch from max(expires_at)) * 1000000)::bigint from onceguard_journal where state = 2), 0)`,
	).Scan(&m.payment, &m.expiry)
	return m, err
}

// wantRows returns an error unless there are so many payments since the mark, and so many rows of the journal that are
// done, and none that is not.
func (p *postgres) wantRows(ctx context.Context, since rowMark, payments, done int) error {
	var gotPayments, gotDone, gotOpen int
	err := p.pool.QueryRowContext(ctx, `
select (select count(*) from payments where id > $1), (select count(*) from onceguard_journal
  where state = 2 and expires_at > timestamptz 'epoch' + $2::bigint * interval '1 microsecond'),
  (select count(*) from onceguard_journal where state = 1)`, since.payment, since.expiry,
	).Scan(&gotPayments, &gotDone, &gotOpen)
	if err == nil && (gotPayments != payments || gotDone != done || gotOpen != 0) {
		return fmt.Errorf("%d payments, and %d rows of the journal that are done and %d that are not; want %d, %d and 0",
			gotPayments, gotDone, gotOpen, payments, done)
	}
	return err
}

// describe returns the version and the settings that the cost of a commit depends on.
func (p *postgres) describe(ctx context.Context) (string, error) {
	names := []string{"server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "shared_buffers"}
	var settings []string
	for _, name := range names {
		var value string
		if err := p.pool.QueryRowContext(ctx, "select current_setting($1)", name).Scan(&value); err != nil {
			return "", err
		}
		settings = append(settings, name+" "+value)
	}
	return strings.Join(settings, ", "), nil
}
