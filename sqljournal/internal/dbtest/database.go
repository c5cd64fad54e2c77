package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite

	"github.com/onceguard/onceguard/sqljournal"
)

// Kind is a kind of database.
type Kind string

const (
	KindPostgreSQL Kind = "postgresql"
	KindMySQL      Kind = "mysql" // or MariaDB
	KindSQLite     Kind = "sqlite"
)

// Servers are the kinds that have a server, which can be crashed, and whose messages can be lost.
var Servers = []Kind{KindPostgreSQL, KindMySQL}

// kinds has what differs between kinds.
var kinds = map[Kind]struct {
	driver   string
	options  []sqljournal.Option // of a Journal
	now      string              // the time in SQL, as the table has it
	interval string              // a format of a number of units, to be added to a time
	unit     time.Duration
}{
	KindPostgreSQL: {"pgx", nil, "now()", "(%d * interval '1 microsecond')", time.Microsecond}, // 13 refuses a large number of microseconds
	KindMySQL: {
		"mysql", []sqljournal.Option{sqljournal.MySQL()},
		"timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))", "%d", time.Microsecond,
	},
	KindSQLite: {
		"sqlite", []sqljournal.Option{sqljournal.SQLite()},
		"cast(round((julianday('now') - 2440587.5) * 86400000) as integer)", "%d", time.Millisecond,
	},
}

// Driver returns the name of the driver for databases of this kind.
func (k Kind) Driver() string { return kinds[k].driver }

// Options returns the options that a Journal on a database of this kind needs.
func (k Kind) Options() []sqljournal.Option { return kinds[k].options }

// Database is a new schema in a server, or a new SQLite file. It has an empty journal's table.
type Database struct {
	Kind   Kind
	Server *Server // nil: SQLite
	name   string  // of the schema, or of the file
}

// Each runs a test on every installed kind of database, each in a parallel subtest.
func Each(t *testing.T, test func(*testing.T, Database)) {
	t.Helper()
	EachServer(t, test)
	t.Run(string(KindSQLite), func(t *testing.T) {
		t.Parallel()
		test(t, SQLite(t))
	})
}

// EachServer is [Each] without SQLite.
func EachServer(t *testing.T, test func(*testing.T, Database)) {
	t.Helper()
	for _, kind := range Servers {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(t, New(t, kind))
		})
	}
}

// New returns a new database of that kind. Without its server the test is skipped, or fails if CI=true. It is also skipped
// if the server is too old.
func New(t testing.TB, kind Kind) Database {
	t.Helper()
	if kind == KindSQLite {
		return SQLite(t)
	}
	return shared[kind].start(t, false).Database(t)
}

// AnyMySQL is [MySQL], but also of a version that is too old.
func AnyMySQL(t testing.TB) Database { return shared[KindMySQL].start(t, true).Database(t) }

// PostgreSQL is [New] for PostgreSQL.
func PostgreSQL(t testing.TB) Database { return New(t, KindPostgreSQL) }

// MySQL is [New] for MySQL or MariaDB.
func MySQL(t testing.TB) Database { return New(t, KindMySQL) }

// Own is [New] in a server that only this test uses, and may end by [Server.Stop] or [Server.Crash].
func Own(t testing.TB, kind Kind) Database {
	t.Helper()
	server := (&Server{kind: kind}).start(t, true)
	t.Cleanup(func() { must(t, server.Close()) })
	if server.IsTooOld {
		t.Skip(tooOld)
	}
	return server.Database(t)
}

var schemas atomic.Int64

// Database returns another schema in the server.
func (s *Server) Database(t testing.TB) Database {
	t.Helper()
	d := Database{Kind: s.kind, Server: s, name: fmt.Sprintf("test%d", schemas.Add(1))}
	nowhere := d
	if s.kind == KindMySQL { // where a connection needs a schema that exists
		nowhere.name = ""
	}
	mustExec(t, nowhere.Open(t), "create schema "+d.name)
	mustExec(t, d.Open(t), sqljournal.Schema(sqljournal.Dialect(d.Kind)))
	return d
}

// SQLite returns a new file.
func SQLite(t testing.TB) Database {
	t.Helper()
	d := Database{Kind: KindSQLite, name: filepath.Join(t.TempDir(), "journal.db")}
	db := d.Open(t)
	mustExec(t, db, sqljournal.Schema(sqljournal.DialectSQLite))
	must(t, db.Close()) // otherwise no other connection could leave the WAL mode
	return d
}

// Name returns the name of the server's schema, or of SQLite's file.
func (d Database) Name() string { return d.name }

// Now returns the time in SQL, as the table has it.
func (d Database) Now() string { return kinds[d.Kind].now }

// Interval returns a duration in SQL, to be added to a time of the table.
func (d Database) Interval(of time.Duration) string {
	return fmt.Sprintf(kinds[d.Kind].interval, of/kinds[d.Kind].unit)
}

// Waiting returns how many transactions wait for another one with a statement on the journal's table. db is a pool of the
// database.
func (d Database) Waiting(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	query := `select count(*) from pg_stat_activity where wait_event_type = 'Lock' and position('onceguard_journal' in query) > 0
		and pid in (select pid from pg_locks l join pg_class c on c.oid = l.relation
			join pg_namespace n on n.oid = c.relnamespace where nspname = '` + d.name + `')`
	if d.Kind == KindMySQL {
		// What InnoDB says of its transactions does not change while it is asked more often than every 0.1 s.
		query = `select count(*) from information_schema.processlist
			where db = '` + d.name + `' and id <> connection_id() and info like '%onceguard_journal%'`
	}
	err := db.QueryRowContext(context.Background(), query).Scan(&n)
	if failed := new(mysql.MySQLError); errors.As(err, &failed) && failed.Number == 3854 {
		return 0 // MySQL cannot compare another connection's statement, which has bytes that are no text
	}
	must(t, err)
	return n
}

// Setting changes how a Database is opened.
type Setting func(*settings)

type settings struct {
	addr   string
	params map[string]string
}

// Through makes the connections to the server go through a proxy.
func Through(p *Proxy) Setting { return func(s *settings) { s.addr = p.Addr() } }

// Param sets a parameter of the connection string: one of the driver, a run-time parameter of the server, or a pragma of SQLite.
// Without it SQLite has busy_timeout, journal_mode(wal) and synchronous(full).
func Param(name, value string) Setting { return func(s *settings) { s.params[name] = value } }

// Isolation sets the default level of isolation, such as "read committed". SQLite has one level.
func (d Database) Isolation(t testing.TB, level string) Setting {
	t.Helper()
	switch d.Kind {
	case KindPostgreSQL:
		return Param("default_transaction_isolation", level)
	case KindMySQL:
		name, value := "transaction_isolation", "" // MySQL, and MariaDB from 11.1 on
		if d.Open(t).QueryRowContext(context.Background(), "select @@"+name).Scan(&value) != nil {
			name = "tx_isolation"
		}
		return Param(name, "'"+strings.ReplaceAll(strings.ToUpper(level), " ", "-")+"'")
	}
	return func(*settings) {}
}

// URL returns the connection string of a database.
func (d Database) URL(opts ...Setting) string {
	s := settings{params: map[string]string{}}
	if d.Server != nil {
		s.addr = d.Server.Addr()
	} else {
		s.params = map[string]string{"busy_timeout": "20000", "journal_mode": "wal", "synchronous": "full"}
	}
	for _, opt := range opts {
		opt(&s)
	}
	values := url.Values{}
	for name, value := range s.params {
		if d.Kind == KindSQLite {
			name, value = "_pragma", name+"("+value+")"
		}
		values.Add(name, value)
	}
	params := strings.ReplaceAll(values.Encode(), "+", "%20") // pgx takes a plus as it is
	switch d.Kind {
	case KindPostgreSQL:
		return d.Server.url(s.addr, d.name) + "&" + params // if a parameter occurs twice, the last one counts
	case KindMySQL:
		return fmt.Sprintf("root@tcp(%s)/%s?%s", s.addr, d.name, params)
	}
	return (&url.URL{Scheme: "file", Path: d.name, RawQuery: params}).String()
}

// Open returns a pool of connections to the database. It is closed when the test ends.
func (d Database) Open(t testing.TB, opts ...Setting) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.Kind.Driver(), d.URL(opts...))
	must(t, err)
	db.SetMaxIdleConns(16) // otherwise a test with many callers would mostly connect
	db.SetMaxOpenConns(32)
	t.Cleanup(func() {
		if err := db.Close(); err != nil && d.Kind != KindMySQL { // whose driver says "bad connection" of what was cut
			t.Errorf("dbtest: closing a pool: %v", err)
		}
	})
	return db
}

// The driver would print each connection that a proxy cuts.
func init() { _ = mysql.SetLogger(&mysql.NopLogger{}) }

func mustExec(t testing.TB, db *sql.DB, statements string) {
	t.Helper()
	_, err := db.ExecContext(context.Background(), statements)
	must(t, err)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
}
