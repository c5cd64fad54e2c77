// The database server of the journal, and what is checked in it.

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	_ "github.com/go-sql-driver/mysql" // the driver mysql
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/onceguard/onceguard/internal/mysqltest"
	"github.com/onceguard/onceguard/internal/pgtest"
	"github.com/onceguard/onceguard/sqljournal"
)

// database is a server with a table of payments and a journal. Rows stay: after a TRUNCATE every connection would plan its
// statements again, and no journal is as small in production.
type database struct {
	dialect
	name     string // with its version
	process  interface{ Close() error }
	pool     *sql.DB // for what is measured and, while nothing is, for checks
	keySpace int     // the last one that was given away
}

// dialect is what differs between the kinds of servers.
type dialect struct {
	brand, driver string
	options       []sqljournal.Option
	tables        []string
	insertPayment string // the handler's effect
	mark          string // selects a rowMark
	count         string // after a rowMark: selects how many payments, rows that are done, and others there are
	version       string // selects it
}

var postgresql = dialect{
	brand: "PostgreSQL", driver: "pgx",
	tables: []string{`
create table payments (
  id bigint generated always as identity primary key,
  customer text not null, amount bigint not null, currency text not null, idempotency_key text not null,
  paid_at timestamptz not null default now())`, sqljournal.Schema(sqljournal.DialectPostgreSQL)},
	insertPayment: `insert into payments (customer, amount, currency, idempotency_key) values ($1, $2, $3, $4)`,
	mark: `
select coalesce((select max(id) from payments), 0),
  coalesce((select (extract(epoch from max(expires_at)) * 1000000)::bigint from onceguard_journal where state = 2), 0)`,
	count: `
select (select count(*) from payments where id > $1), (select count(*) from onceguard_journal
  where state = 2 and expires_at > timestamptz 'epoch' + $2::bigint * interval '1 microsecond'),
  (select count(*) from onceguard_journal where state = 1)`,
	version: "select split_part(current_setting('server_version'), ' ', 1)",
}

var mysql = dialect{
	brand: "MySQL", driver: "mysql",
	options: []sqljournal.Option{sqljournal.MySQL()},
	tables: []string{`
create table payments (
  id bigint auto_increment primary key,
  customer varchar(64) not null, amount bigint not null, currency char(3) not null, idempotency_key varchar(255) not null,
  paid_at timestamp(6) not null default current_timestamp(6)) engine = InnoDB`, sqljournal.Schema(sqljournal.DialectMySQL)},
	insertPayment: `insert into payments (customer, amount, currency, idempotency_key) values (?, ?, ?, ?)`,
	mark: `
select coalesce((select max(id) from payments), 0), coalesce((select max(expires_at) from onceguard_journal where state = 2), 0)`,
	count: `
select (select count(*) from payments where id > ?), (select count(*) from onceguard_journal where state = 2 and expires_at > ?),
  (select count(*) from onceguard_journal where state = 1)`,
	version: "select substring_index(version(), '-', 1)",
}

// databases returns the programs of the database servers that ONCEGUARD_SERVERS names, or of those that are installed.
func databases() (programs []string) {
	if programs = filepath.SplitList(os.Getenv("ONCEGUARD_SERVERS")); len(programs) > 0 {
		return programs
	}
	if dir, err := pgtest.Find(); err == nil {
		programs = append(programs, filepath.Join(dir, "postgres"))
	}
	if program, err := mysqltest.Find(); err == nil {
		programs = append(programs, program)
	}
	return programs
}

// startDatabase returns a server of that program whose tables are empty.
func startDatabase(ctx context.Context, program string) (*database, error) {
	// The first one on the PATH is started.
	if err := os.Setenv("PATH", filepath.Dir(program)+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		return nil, err
	}
	d, source, err := startServer(program)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	if d.pool, err = sql.Open(d.driver, source); err == nil {
		err = d.prepare(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("preparing %s: %w", program, err), d.stop())
	}
	return d, nil
}

// startServer returns a server without a pool, and the connection string of a database.
func startServer(program string) (*database, string, error) {
	if filepath.Base(program) == "postgres" {
		s, err := pgtest.Start()
		if err != nil {
			return nil, "", err
		}
		return &database{dialect: postgresql, process: s}, s.URL(s.Addr(), "public"), nil
	}
	s, err := mysqltest.Start()
	if err != nil {
		return nil, "", err
	}
	d := &database{dialect: mysql, process: s}
	if s.IsMariaDB() {
		d.brand = "MariaDB"
	}
	return d, s.DSN(s.Addr(), "mysql"), nil
}

// prepare makes the tables.
func (d *database) prepare(ctx context.Context) error {
	var version string
	if err := d.pool.QueryRowContext(ctx, d.version).Scan(&version); err != nil {
		return err
	}
	d.name = d.brand + " " + version
	for _, statement := range d.tables {
		if _, err := d.pool.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// allow lets the pool have so many connections, which stay open.
func (d *database) allow(connections int) {
	d.pool.SetMaxOpenConns(connections)
	d.pool.SetMaxIdleConns(connections)
}

// stop ends the server and removes what it has stored.
func (d *database) stop() error {
	var err error
	if d.pool != nil {
		err = d.pool.Close()
	}
	return errors.Join(err, d.process.Close())
}

// newKeys moves keys to a part of the sequence that nobody else has.
func (d *database) newKeys(keys []keys) {
	d.keySpace++
	for i := range keys {
		keys[i].next = d.keySpace << 24
	}
}

// rowMark is what the tables have at a moment: later rows have higher values. All responses are kept equally long.
type rowMark struct{ payment, expiry int64 }

func (d *database) markRows(ctx context.Context) (m rowMark, err error) {
	err = d.pool.QueryRowContext(ctx, d.mark).Scan(&m.payment, &m.expiry)
	return m, err
}

// wantRows returns an error unless there are so many payments since the mark, and so many rows of the journal that are
// done, and none that is not.
func (d *database) wantRows(ctx context.Context, since rowMark, payments, done int) error {
	var gotPayments, gotDone, gotOpen int
	err := d.pool.QueryRowContext(ctx, d.count, since.payment, since.expiry).Scan(&gotPayments, &gotDone, &gotOpen)
	if err == nil && (gotPayments != payments || gotDone != done || gotOpen != 0) {
		return fmt.Errorf("%d payments, and %d rows of the journal that are done and %d that are not; want %d, %d and 0",
			gotPayments, gotDone, gotOpen, payments, done)
	}
	return err
}
