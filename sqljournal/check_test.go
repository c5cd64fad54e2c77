package sqljournal_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

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
		{"mysql", nil, "alter table onceguard_journal drop run, drop fingerprint", sqljournal.ErrTable},
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
			if row.database == "mysql" && errors.Is(err, sqljournal.ErrOldSchema) {
				t.Errorf("it can be upgraded, for which there are no statements: %v", err)
			}
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

// A user that lacks a privilege of a journal is not a finding, but an error.
//
// fault: a database's user who may not UPDATE, or lacks another privilege
func TestCheckNeedsPrivileges(t *testing.T) {
	t.Parallel()
	privileges := []string{"select", "insert", "update", "delete"}
	dbtest.EachServer(t, func(t *testing.T, d dbtest.Database) {
		db := d.Open(t)
		checkWithout := func(missing string) error {
			user := d.Name() + missing
			granted := strings.Join(slices.DeleteFunc(slices.Clone(privileges), func(p string) bool { return p == missing }), ", ")
			var opened *sql.DB
			if d.Kind() == dbtest.KindMySQL {
				mustExec(t, db, "create user "+user)
				mustExec(t, db, "grant "+granted+" on onceguard_journal to "+user)
				config, err := mysql.ParseDSN(d.URL())
				if err != nil {
					t.Fatal(err)
				}
				config.User = user
				connector, err := mysql.NewConnector(config)
				if err != nil {
					t.Fatal(err)
				}
				opened = sql.OpenDB(connector)
				defer opened.Close()
			} else {
				mustExec(t, db, "create role "+user+" login")
				mustExec(t, db, "grant usage on schema "+d.Name()+" to "+user)
				mustExec(t, db, "grant "+granted+" on onceguard_journal to "+user)
				opened = d.Open(t, dbtest.Param("user", user))
			}
			return sqljournal.Intent(opened, namespace, d.Options()...).Check(t.Context())
		}
		for _, missing := range privileges {
			if err := checkWithout(missing); err == nil || !strings.Contains(err.Error(), "denied") {
				t.Errorf("without %s: got %v", missing, err)
			}
		}
		if err := checkWithout(""); err != nil {
			t.Errorf("with all privileges that it needs: %v", err)
		}
	})
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
