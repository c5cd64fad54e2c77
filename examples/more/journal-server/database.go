package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver

	"github.com/onceguard/onceguard/sqljournal"
)

// database has the payments, the charges and the journals.
type database struct {
	*sql.DB
	options []sqljournal.Option
	dialect sqljournal.Dialect
	name    string // for the log, without credentials
	remove  func() error
}

// openDatabase opens the database of the -db flag and creates the tables that are missing.
func openDatabase(ctx context.Context, source string) (*database, error) {
	d, err := connect(source)
	if err != nil {
		return nil, err
	}
	if err := d.createTables(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("creating the tables in %s: %w", d.name, err), d.close())
	}
	return d, nil
}

func connect(source string) (*database, error) {
	path, isSQLite := strings.CutPrefix(source, "sqlite:")
	switch {
	case source == "":
		return openTemporary()
	case isSQLite && path != "":
		return openSQLite(path)
	case strings.HasPrefix(source, "mysql://"):
		return openMySQL(source)
	case strings.HasPrefix(source, "postgres://"), strings.HasPrefix(source, "postgresql://"):
		return openPostgreSQL(source)
	}
	return nil, errors.New("the database is neither sqlite:PATH nor a postgres:// or mysql:// URL")
}

func openPostgreSQL(source string) (*database, error) {
	cfg, err := pgx.ParseConfig(source)
	if err != nil {
		return nil, errors.New("the database URL is malformed: want postgres://user:password@host:port/database")
	}
	db := stdlib.OpenDB(*cfg)
	// By default only 2 connections stay open: under load most requests would open one.
	db.SetMaxOpenConns(50)
	db.SetMaxIdleConns(50)
	return &database{
		DB:      db,
		dialect: sqljournal.DialectPostgreSQL,
		name:    "PostgreSQL on " + cfg.Host,
	}, nil
}

// openMySQL opens a database of MySQL or MariaDB. The URL's parameters are those of the driver.
func openMySQL(source string) (*database, error) {
	u, err := url.Parse(source)
	if err != nil || u.Hostname() == "" || len(u.Path) < 2 {
		return nil, errMySQL
	}
	cfg, err := mysql.ParseDSN("/?" + u.RawQuery)
	if err != nil {
		return nil, errMySQL
	}
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = u.User.Username(), "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306")), u.Path[1:]
	cfg.Passwd, _ = u.User.Password()
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, errMySQL
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(50)
	db.SetMaxIdleConns(50)
	return &database{
		DB:      db,
		options: []sqljournal.Option{sqljournal.MySQL()},
		dialect: sqljournal.DialectMySQL,
		name:    "MySQL on " + u.Hostname(),
	}, nil
}

var errMySQL = errors.New("the database URL is malformed: want mysql://user:password@host:port/database")

// numbered is a parameter as PostgreSQL and SQLite have it. Each statement has them in their order.
var numbered = regexp.MustCompile(`\$\d`)

// text returns a statement as the database takes it.
func (d *database) text(statement string) string {
	if d.dialect != sqljournal.DialectMySQL {
		return statement
	}
	return numbered.ReplaceAllLiteralString(strings.NewReplacer(
		"text primary key", "varchar(200) primary key",
		"on conflict (id) do nothing", "on duplicate key update id = id",
	).Replace(statement), "?")
}

// openSQLite opens a file in WAL mode, in which readers do not wait for the writer. A writer waits for another for 10
// s.
func openSQLite(path string) (*database, error) {
	full, err := filepath.Abs(path) // in a URL, the begin of a relative path would be a host
	if err != nil {
		return nil, err
	}
	pragmas := url.Values{"_pragma": {"journal_mode(wal)", "busy_timeout(10000)", "synchronous(full)", "foreign_keys(on)"}}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: full, RawQuery: pragmas.Encode()}).String())
	if err != nil {
		return nil, err
	}
	return &database{
		DB:      db,
		options: []sqljournal.Option{sqljournal.SQLite()},
		dialect: sqljournal.DialectSQLite,
		name:    "SQLite in " + path,
	}, nil
}

func openTemporary() (*database, error) {
	dir, err := os.MkdirTemp("", "journal-server")
	if err != nil {
		return nil, err
	}
	remove := func() error { return os.RemoveAll(dir) }
	d, err := openSQLite(filepath.Join(dir, "payments.db"))
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	d.name += ", removed at exit"
	d.remove = remove
	return d, nil
}

func (d *database) close() error {
	err := d.Close()
	if d.remove != nil {
		err = errors.Join(err, d.remove())
	}
	return err
}

// paymentsTable has no time: the ids are UUIDs of version 7, which are ordered by time.
const paymentsTable = `create table if not exists payments (
  id       text primary key,
  customer text not null,
  amount   bigint not null, -- in the currency's smallest unit
  currency text not null
)`

// createTables creates the tables that are missing. In a real service they belong in the migrations: two instances that
// start at the same time with an empty database are in each other's way here.
func (d *database) createTables(ctx context.Context) error {
	for _, table := range []string{paymentsTable, chargesTable} {
		if _, err := d.ExecContext(ctx, d.text(table)); err != nil {
			return err
		}
	}
	switch err := sqljournal.Intent(d.DB, namespace, d.options...).Check(ctx); {
	case errors.Is(err, sqljournal.ErrSetting):
		return err
	case !errors.Is(err, sqljournal.ErrTable):
		return nil // its other findings are for the log
	}
	_, err := d.ExecContext(ctx, sqljournal.Schema(d.dialect)) // fails if there is another table with that name
	return err
}
