package sqljournal_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

func check(t *testing.T, d dbtest.Database, opts ...dbtest.Setting) error {
	t.Helper()
	err := sqljournal.Transactional(d.Open(t, opts...), namespace, d.Options()...).Check(t.Context())
	var n int
	if scan := d.Open(t).QueryRowContext(t.Context(), "select count(*) from onceguard_journal").Scan(&n); scan == nil && n != 0 {
		t.Errorf("Check has left %d rows", n)
	}
	return err
}

func TestCheck(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		if err := check(t, d); err != nil {
			t.Errorf("on a database that is as it should be: %v", err)
		}
		closed := d.Open(t)
		if err := closed.Close(); err != nil {
			t.Fatal(err)
		}
		err := sqljournal.Intent(closed, namespace, d.Options()...).Check(t.Context())
		for _, finding := range []error{sqljournal.ErrTable, sqljournal.ErrReadOnly, sqljournal.ErrNotDurable, sqljournal.ErrBusy} {
			if err == nil || errors.Is(err, finding) {
				t.Errorf("without a database: got %v", err)
			}
		}
	})
}

func TestCheckFindsSettings(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		database string
		setting  dbtest.Setting
		before   string // a statement
		want     error
	}{
		{"postgresql", dbtest.Param("synchronous_commit", "off"), "", sqljournal.ErrNotDurable},
		{"postgresql", nil, "alter table onceguard_journal set unlogged", sqljournal.ErrNotDurable},
		{"postgresql", dbtest.Param("default_transaction_read_only", "on"), "", sqljournal.ErrReadOnly},
		{"postgresql", dbtest.Param("search_path", "nowhere"), "", sqljournal.ErrTable},
		{"postgresql", nil, "alter table onceguard_journal alter column token type text", sqljournal.ErrTable},
		{"postgresql", nil, "alter table onceguard_journal drop constraint onceguard_journal_pkey", sqljournal.ErrTable},
		{"mysql", dbtest.Param("sql_mode", "''"), "", sqljournal.ErrSetting},
		{"mysql", nil, "alter table onceguard_journal engine = MyISAM", sqljournal.ErrTable},
		{"mysql", nil, "alter table onceguard_journal drop primary key", sqljournal.ErrTable},
		{"mysql", nil, "alter table onceguard_journal modify token char(36)", sqljournal.ErrTable},
		{"mysql", nil, "alter table onceguard_journal modify record blob", sqljournal.ErrTable},
		{"mysql", nil, "drop table onceguard_journal", sqljournal.ErrTable},
		{"sqlite", nil, "alter table onceguard_journal rename column note to notes", sqljournal.ErrTable},
		{"sqlite", nil, "drop table onceguard_journal", sqljournal.ErrTable},
		{"sqlite", dbtest.Pragma("query_only", "1"), "", sqljournal.ErrReadOnly},
		{"sqlite", dbtest.Pragma("synchronous", "normal"), "", sqljournal.ErrNotDurable},
		{"sqlite", dbtest.Pragma("busy_timeout", "0"), "", sqljournal.ErrBusy},
		{"sqlite", dbtest.Pragma("journal_mode", "delete"), "", sqljournal.ErrBusy},
	} {
		t.Run(row.want.Error()+row.before, func(t *testing.T) {
			t.Parallel()
			d := dbtest.New(t, dbtest.Kind(row.database))
			if row.before != "" {
				mustExec(t, d.Open(t), row.before)
			}
			var opts []dbtest.Setting
			if row.setting != nil {
				opts = append(opts, row.setting)
			}
			err := check(t, d, opts...)
			mustFail(t, "Check", err, row.want)
			if err != nil && strings.Contains(err.Error(), "check: ") {
				t.Errorf("more than the finding: %v", err)
			}
		})
	}
}

// At READ UNCOMMITTED a look would see a response that is rolled back.
func TestCheckFindsReadUncommitted(t *testing.T) {
	t.Parallel()
	d := dbtest.MySQL(t)
	mustFail(t, "Check", check(t, d, d.Isolation(t, "read uncommitted")), sqljournal.ErrSetting)
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		if err := check(t, d, d.Isolation(t, level)); err != nil {
			t.Errorf("%s: %v", level, err)
		}
	}
}

// A user that may not write the table is not a finding, but an error.
func TestCheckNeedsPrivileges(t *testing.T) {
	t.Parallel()
	d := dbtest.PostgreSQL(t)
	db := d.Open(t)
	role := d.Name() + "_reader"
	mustExec(t, db, "create role "+role+" login")
	mustExec(t, db, "grant usage on schema "+d.Name()+" to "+role)
	mustExec(t, db, "grant select, insert, update on onceguard_journal to "+role)
	err := sqljournal.Intent(d.Open(t, dbtest.Param("user", role)), namespace).Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("without the privilege to delete: got %v", err)
	}
	mustExec(t, db, "grant delete on onceguard_journal to "+role)
	if err := sqljournal.Intent(d.Open(t, dbtest.Param("user", role)), namespace).Check(t.Context()); err != nil {
		t.Errorf("with all privileges that it needs: %v", err)
	}
}

func TestSchemaOfAnUnknownDialect(t *testing.T) {
	t.Parallel()
	mustPanic(t, `sqljournal.Schema: unknown dialect "oracle"`, func() { sqljournal.Schema("oracle") })
}

func TestWrongConfiguration(t *testing.T) {
	t.Parallel()
	db := dbtest.SQLite(t).Open(t)
	mustPanic(t, "sqljournal.Transactional: the database is nil", func() { sqljournal.Transactional(nil, namespace) })
	mustPanic(t, "sqljournal.Intent: the database is nil", func() { sqljournal.Intent(nil, namespace) })
	mustPanic(t, "sqljournal.Intent: option 2 is nil", func() { sqljournal.Intent(db, namespace, sqljournal.SQLite(), nil) })
	for _, wrong := range []string{"", "{shop}", "shop}", "a{b"} {
		const want = "namespace must be a text that is not empty and has no braces"
		mustPanic(t, "sqljournal.Transactional: "+want, func() { sqljournal.Transactional(db, wrong) })
		mustPanic(t, "sqljournal.Intent: "+want, func() { sqljournal.Intent(db, wrong) })
	}
}

func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		if got := recover(); got != want {
			t.Errorf("got the panic %v, want %q", got, want)
		}
	}()
	f()
}

func mustExec(t testing.TB, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
