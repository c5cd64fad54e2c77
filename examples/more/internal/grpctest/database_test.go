package grpctest_test

import (
	"database/sql"
	"os"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite

	"github.com/onceguard/onceguard/internal/pgtest"
	"github.com/onceguard/onceguard/sqljournal"
)

// database has an empty journal's table.
type database struct{ driver, source string }

// postgreSQL starts a server for this test. Without PostgreSQL the test is skipped, or fails with CI=true.
func postgreSQL(t testing.TB) database {
	t.Helper()
	if _, err := pgtest.Find(); err != nil && os.Getenv("CI") != "true" {
		t.Skipf("left out: needs PostgreSQL: %v", err)
	}
	server, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("stopping PostgreSQL: %v", err)
		}
	})
	d := database{driver: "pgx", source: server.URL(server.Addr(), "public")}
	d.create(t, sqljournal.DialectPostgreSQL)
	return d
}

func (d database) create(t testing.TB, dialect sqljournal.Dialect) {
	t.Helper()
	if _, err := d.open(t).Exec(sqljournal.Schema(dialect)); err != nil {
		t.Fatal(err)
	}
}

// open returns a pool that is closed when the test ends.
func (d database) open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.driver, d.source)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxIdleConns(16)
	db.SetMaxOpenConns(32)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("closing a pool: %v", err)
		}
	})
	return db
}
