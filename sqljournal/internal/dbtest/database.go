package dbtest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite

	"github.com/onceguard/onceguard/sqljournal"
)

// Database is a new schema in the PostgreSQL server, or a new SQLite file. It has an empty journal's table.
type Database struct {
	server *Server // nil: SQLite
	name   string  // of the schema, or of the file
}

// Each runs a test on every installed kind of database, each in a parallel subtest.
func Each(t *testing.T, test func(*testing.T, Database)) {
	t.Helper()
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		test(t, PostgreSQL(t))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, SQLite(t))
	})
}

var schemas atomic.Int64

// PostgreSQL returns a new schema. Without PostgreSQL the test is skipped, or fails if CI=true.
func PostgreSQL(t testing.TB) Database {
	t.Helper()
	return shared.get(t).Database(t)
}

// OwnPostgreSQL is [PostgreSQL] in a server that only this test uses, and may end by [Server.Stop] or [Server.Crash].
func OwnPostgreSQL(t testing.TB) Database {
	t.Helper()
	var own sharedServer
	server := own.get(t)
	t.Cleanup(func() {
		if err := own.stop(); err != nil {
			t.Errorf("dbtest: stopping PostgreSQL: %v", err)
		}
	})
	return server.Database(t)
}

// Database returns another schema in the server.
func (s *Server) Database(t testing.TB) Database {
	t.Helper()
	d := Database{server: s, name: fmt.Sprintf("test%d", schemas.Add(1))}
	db := d.Open(t)
	mustExec(t, db, "create schema "+d.name)
	mustExec(t, db, sqljournal.Schema(sqljournal.DialectPostgreSQL))
	return d
}

// SQLite returns a new file.
func SQLite(t testing.TB) Database {
	t.Helper()
	d := Database{name: filepath.Join(t.TempDir(), "journal.db")}
	db := d.Open(t)
	mustExec(t, db, sqljournal.Schema(sqljournal.DialectSQLite))
	if err := db.Close(); err != nil { // otherwise no other connection could leave the WAL mode
		t.Fatalf("dbtest: %v", err)
	}
	return d
}

// Server returns the PostgreSQL server, nil with SQLite.
func (d Database) Server() *Server { return d.server }

// Name returns the name of PostgreSQL's schema, or of SQLite's file.
func (d Database) Name() string { return d.name }

// Options returns the options that a Journal on this database needs.
func (d Database) Options() []sqljournal.Option {
	if d.server == nil {
		return []sqljournal.Option{sqljournal.SQLite()}
	}
	return nil
}

// Setting changes how a Database is opened.
type Setting func(*settings)

type settings struct {
	addr    string
	params  url.Values
	pragmas map[string]string
}

func (d Database) settings(opts []Setting) settings {
	s := settings{
		params:  url.Values{},
		pragmas: map[string]string{"busy_timeout": "20000", "journal_mode": "wal", "synchronous": "full"},
	}
	if d.server != nil {
		s.addr = d.server.Addr()
	}
	for _, opt := range opts {
		opt(&s)
	}
	return s
}

// Through makes the connections to PostgreSQL go through a proxy.
func Through(p *Proxy) Setting { return func(s *settings) { s.addr = p.Addr() } }

// Param sets a parameter of the connection string: one of pgx, or one of the server's run-time parameters. SQLite has
// none.
func Param(name, value string) Setting { return func(s *settings) { s.params.Set(name, value) } }

// Pragma sets one of SQLite's pragmas on each connection. Without it there are busy_timeout, journal_mode(wal) and
// synchronous(full). PostgreSQL has none.
func Pragma(name, value string) Setting { return func(s *settings) { s.pragmas[name] = value } }

// URL returns the connection string of a PostgreSQL.
func (d Database) URL(opts ...Setting) string {
	s := d.settings(opts)
	params := strings.ReplaceAll(s.params.Encode(), "+", "%20") // pgx takes a plus as it is
	return d.server.URL(s.addr, d.name) + "&" + params          // if a parameter occurs twice, the last one counts
}

// Open returns a pool of connections to the database. It is closed when the test ends.
func (d Database) Open(t testing.TB, opts ...Setting) *sql.DB {
	t.Helper()
	driver, source := "sqlite", ""
	if d.server != nil {
		driver, source = "pgx", d.URL(opts...)
	} else {
		s := d.settings(opts)
		for name, value := range s.pragmas {
			s.params.Add("_pragma", name+"("+value+")")
		}
		source = (&url.URL{Scheme: "file", Path: d.name, RawQuery: s.params.Encode()}).String()
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	db.SetMaxIdleConns(16) // otherwise a test with many callers would mostly connect
	db.SetMaxOpenConns(32)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("dbtest: closing a pool: %v", err)
		}
	})
	return db
}

func mustExec(t testing.TB, db *sql.DB, statements string) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), statements); err != nil {
		t.Fatalf("dbtest: %v", err)
	}
}
