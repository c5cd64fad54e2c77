package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	_ "modernc.org/sqlite" // the driver

	"github.com/onceguard/onceguard/sqljournal"
)

// database has the checkouts, the orders and the journal.
type database struct {
	*sql.DB
	remove func() error // nil if the file stays
}

// tables are the shop's own. In a real service they belong in the migrations.
const tables = `
create table if not exists checkouts (
  id       text primary key,
  identity text not null,
  status   text not null,
  items    text not null, -- as they were sent
  currency text not null
);
create table if not exists orders (
  id       text primary key,
  identity text not null,
  checkout text not null unique references checkouts
);`

// openDatabase opens the database of the -db flag and creates the tables that are missing.
func openDatabase(ctx context.Context, source string) (*database, error) {
	path, ok := strings.CutPrefix(source, "sqlite:")
	d := &database{}
	if source == "" {
		dir, err := os.MkdirTemp("", "checkout")
		if err != nil {
			return nil, err
		}
		path, ok = filepath.Join(dir, "shop.db"), true
		d.remove = func() error { return os.RemoveAll(dir) }
	}
	if !ok || path == "" {
		return nil, errors.New("the database is not sqlite:PATH")
	}
	full, err := filepath.Abs(path) // in a URL, the begin of a relative path would be a host
	if err != nil {
		return nil, err
	}
	query := url.Values{
		"_pragma": {"journal_mode(wal)", "busy_timeout(10000)", "synchronous(full)", "foreign_keys(on)"},
		"_txlock": {"immediate"}, // a transaction that has read may always write
	}
	if d.DB, err = sql.Open("sqlite", (&url.URL{Scheme: "file", Path: full, RawQuery: query.Encode()}).String()); err != nil {
		return nil, err
	}
	if err := d.createTables(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("creating the tables: %w", err), d.close())
	}
	return d, nil
}

func (d *database) createTables(ctx context.Context) error {
	if _, err := d.ExecContext(ctx, tables); err != nil {
		return err
	}
	journal := sqljournal.Transactional(d.DB, namespace, sqljournal.SQLite())
	if err := journal.Check(ctx); !errors.Is(err, sqljournal.ErrTable) {
		return err
	}
	_, err := d.ExecContext(ctx, sqljournal.Schema(sqljournal.DialectSQLite))
	return err
}

func (d *database) close() error {
	err := d.Close()
	if d.remove != nil {
		err = errors.Join(err, d.remove())
	}
	return err
}

// newID returns an id that is greater than earlier ones.
func newID(prefix string) string { return prefix + "_" + uuid.Must(uuid.NewV7()).String() }

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func findCheckout(ctx context.Context, q querier, identity, id string) (c checkout, err error) {
	var items string
	row := q.QueryRowContext(ctx, "select id, status, items, currency from checkouts where id = $1 and identity = $2", id, identity)
	if err := row.Scan(&c.ID, &c.Status, &items, &c.Currency); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			err = errNotFound
		}
		return c, err
	}
	c.Items = json.RawMessage(items)
	return c, nil
}

func insertCheckout(ctx context.Context, tx *sql.Tx, identity string, c *checkout) error {
	_, err := tx.ExecContext(ctx, "insert into checkouts (id, identity, status, items, currency) values ($1, $2, $3, $4, $5)",
		c.ID, identity, c.Status, string(c.Items), c.Currency)
	return err
}

func updateCheckout(ctx context.Context, tx *sql.Tx, c *checkout) error {
	_, err := tx.ExecContext(ctx, "update checkouts set status = $2, items = $3, currency = $4 where id = $1",
		c.ID, c.Status, string(c.Items), c.Currency)
	return err
}

func insertOrder(ctx context.Context, tx *sql.Tx, identity string, o *order) error {
	_, err := tx.ExecContext(ctx, "insert into orders (id, identity, checkout) values ($1, $2, $3)", o.ID, identity, o.Checkout)
	return err
}

// selectIDs returns a slice that is never nil, so that its JSON is [] and not null.
func selectIDs(ctx context.Context, db *database, query string, args ...any) ([]string, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	ids := []string{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
