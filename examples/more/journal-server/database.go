package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	_ "modernc.org/sqlite"             // the driver

	"github.com/onceguard/onceguard/sqljournal"
)

// database has the payments and the journals.
type database struct {
	*sql.DB
	options []sqljournal.Option
	dialect sqljournal.Dialect
}

// tables are the service's. A payment has no time: the ids are UUIDs of version 7, which are ordered by time, or those of
// charges. In a real service the tables belong in the migrations: two instances that start at the same time with an empty
// database are in each other's way here.
const tables = `create table if not exists payments (
  id       text primary key,
  customer text not null,
  amount   bigint not null, -- in the currency's smallest unit
  currency text not null,
  receipt  text not null -- the provider's; empty if there is none
);` + providerTable

// openDatabase opens the database of the -db flag and creates the tables that are missing.
func openDatabase(ctx context.Context, source string) (d *database, err error) {
	if d, err = connect(source); err != nil {
		return nil, err
	}
	if _, err = d.ExecContext(ctx, tables); err == nil {
		err = sqljournal.Intent(d.DB, namespace, d.options...).Check(ctx)
		// Its other findings are for the log.
		if errors.Is(err, sqljournal.ErrTable) {
			_, err = d.ExecContext(ctx, sqljournal.Schema(d.dialect))
		} else if !errors.Is(err, sqljournal.ErrSetting) {
			err = nil
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("creating the tables: %w", err), d.Close())
	}
	return d, nil
}

func connect(source string) (*database, error) {
	path, isSQLite := strings.CutPrefix(source, "sqlite:")
	if source != "" && !isSQLite {
		db, err := sql.Open("pgx", source)
		// Its text may contain the password.
		if err != nil {
			return nil, errors.New("the database is neither sqlite:PATH nor postgres://user:password@host:port/database")
		}
		// By default only 2 connections stay open: under load most requests would open one.
		db.SetMaxOpenConns(50)
		db.SetMaxIdleConns(50)
		return &database{DB: db, dialect: sqljournal.DialectPostgreSQL}, nil
	}
	// In WAL mode readers do not wait for the writer. A writer waits for another for 10 s.
	path = cmp.Or(path, filepath.Join(os.TempDir(), fmt.Sprintf("journal-server-%d.db", os.Getpid())))
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)&_pragma=synchronous(full)")
	return &database{db, []sqljournal.Option{sqljournal.SQLite()}, sqljournal.DialectSQLite}, err
}
