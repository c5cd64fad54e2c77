package sqljournal_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

func check(t *testing.T, d dbtest.Database, opts ...dbtest.Setting) error {
	t.Helper()
	err := sqljournal.Transactional(d.Open(t, opts...), namespace, d.Kind.Options()...).Check(t.Context())
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
		j := sqljournal.Intent(closed, namespace, d.Kind.Options()...)
		_, errInspect := j.Inspect(t.Context(), "k")
		_, errScan := j.Scan(t.Context())
		for _, err := range []error{errInspect, errScan, j.Forget(t.Context(), "k", newRun(0).Token, false)} {
			if err == nil {
				t.Error("without a database: an operator gets no error")
			}
		}
		err := j.Check(t.Context())
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
		kind    dbtest.Kind
		setting dbtest.Setting
		before  string // a statement
		want    error
	}{
		{"postgresql", dbtest.Param("synchronous_commit", "off"), "", sqljournal.ErrNotDurable},
		{"postgresql", nil, "alter table onceguard_journal set unlogged", sqljournal.ErrNotDurable},
		{"postgresql", dbtest.Param("default_transaction_read_only", "on"), "", sqljournal.ErrReadOnly},
		{"postgresql", dbtest.Param("search_path", "nowhere"), "", sqljournal.ErrTable},
		{"postgresql", nil, "alter table onceguard_journal alter column token type text", sqljournal.ErrTable},
		{"postgresql", nil, "alter table onceguard_journal drop constraint onceguard_journal_pkey", sqljournal.ErrTable},
		{"mysql", dbtest.Param("sql_mode", "''"), "", sqljournal.ErrSetting},
		{"mysql", dbtest.Param("sql_mode", "'STRICT_ALL_TABLES,EMPTY_STRING_IS_NULL'"), mariaDB, sqljournal.ErrSetting},
		{"mysql", dbtest.Param("sql_mode", "'STRICT_ALL_TABLES,ORACLE'"), mariaDB, sqljournal.ErrSetting},
		{"mysql", nil, "alter table onceguard_journal engine = MyISAM", sqljournal.ErrTable},
		{"mysql", nil, "alter table onceguard_journal drop primary key", sqljournal.ErrTable},
		{"mysql", nil, "alter table onceguard_journal modify token char(36)", sqljournal.ErrTable},
		{"mysql", nil, "alter table onceguard_journal modify record blob", sqljournal.ErrTable},
		{"mysql", nil, "alter table onceguard_journal drop run, drop fingerprint", sqljournal.ErrTable},
		{"mysql", nil, "drop table onceguard_journal", sqljournal.ErrTable},
		{"sqlite", nil, "alter table onceguard_journal rename column note to notes", sqljournal.ErrTable},
		{"sqlite", nil, "drop table onceguard_journal", sqljournal.ErrTable},
		{"sqlite", dbtest.Param("query_only", "1"), "", sqljournal.ErrReadOnly},
		{"sqlite", dbtest.Param("synchronous", "normal"), "", sqljournal.ErrNotDurable},
		{"sqlite", dbtest.Param("busy_timeout", "0"), "", sqljournal.ErrBusy},
		{"sqlite", dbtest.Param("journal_mode", "delete"), "", sqljournal.ErrBusy},
	} {
		t.Run(row.want.Error()+row.before, func(t *testing.T) {
			t.Parallel()
			d := dbtest.New(t, row.kind)
			if row.before == mariaDB && !d.Server.IsMariaDB {
				t.Skip("left out: MySQL does not have these modes")
			}
			var opts []dbtest.Setting
			if row.setting != nil {
				opts = append(opts, row.setting)
			}
			if row.before != "" {
				mustExec(t, d.Open(t), row.before)
			}
			mustFind(t, check(t, d, opts...), row.want)
		})
	}
	// At READ UNCOMMITTED a look would see a response that is rolled back.
	t.Run("isolation", func(t *testing.T) {
		t.Parallel()
		d := dbtest.MySQL(t)
		mustFind(t, check(t, d, d.Isolation(t, "read uncommitted")), sqljournal.ErrSetting)
		for _, level := range []string{"read committed", "repeatable read", "serializable"} {
			mustFail(t, level, check(t, d, d.Isolation(t, level)), nil)
		}
	})
}

// mariaDB is a statement for a test that is about MariaDB alone.
const mariaDB = "do 0"

// mustFind checks that Check has found want and nothing else.
func mustFind(t *testing.T, err, want error) {
	t.Helper()
	mustFail(t, "Check", err, want)
	if err != nil && (strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "check: ") || errors.Is(err, sqljournal.ErrOldSchema)) {
		t.Errorf("more than the finding: %v", err)
	}
}

// A user that lacks a privilege of a journal is not a finding, but an error.
//
// fault: a database's user who may not UPDATE, or lacks another privilege
func TestCheckNeedsPrivileges(t *testing.T) {
	t.Parallel()
	dbtest.EachServer(t, func(t *testing.T, d dbtest.Database) {
		db := d.Open(t)
		checkWith := func(user string, privileges ...string) error {
			user = d.Name() + user
			mustExec(t, db, "create user "+user)
			mustExec(t, db, "grant "+strings.Join(privileges, ", ")+" on onceguard_journal to "+user)
			source := strings.Replace(d.URL(), "root@", user+"@", 1)
			if d.Kind == dbtest.KindPostgreSQL {
				mustExec(t, db, "grant usage on schema "+d.Name()+" to "+user)
				source = d.URL(dbtest.Param("user", user))
			}
			opened, err := sql.Open(d.Kind.Driver(), source)
			if err != nil {
				t.Fatal(err)
			}
			defer opened.Close()
			return sqljournal.Intent(opened, namespace, d.Kind.Options()...).Check(t.Context())
		}
		all := []string{"select", "insert", "update", "delete"}
		for i, missing := range all {
			if err := checkWith(missing, slices.Delete(slices.Clone(all), i, i+1)...); err == nil || !strings.Contains(err.Error(), "denied") {
				t.Errorf("without %s: got %v", missing, err)
			}
		}
		mustFail(t, "with all privileges that it needs", checkWith("", all...), nil)
	})
}

// A version without SKIP LOCKED is refused. All other tests leave it out.
func TestCheckFindsAnOldVersion(t *testing.T) {
	t.Parallel()
	d := dbtest.AnyMySQL(t)
	var want error
	if d.Server.IsTooOld {
		want = sqljournal.ErrSetting
	}
	mustFail(t, "Check", check(t, d), want)
	_, err := sqljournal.Intent(d.Open(t), namespace, sqljournal.MySQL()).Expire(t.Context())
	if (err != nil) != d.Server.IsTooOld {
		t.Errorf("Expire: %v", err)
	}
}

// What the server says of itself. With the least max_allowed_packet that Check allows, the longest response is stored that is by
// default.
func TestCheckFindsServerVariables(t *testing.T) {
	t.Parallel()
	d := dbtest.Own(t, dbtest.KindMySQL)
	db := d.Open(t)
	var hasBinaryLog bool
	mustFail(t, "log_bin", db.QueryRow("select @@log_bin").Scan(&hasBinaryLog), nil)
	for _, row := range []struct {
		name, wrong, right string
		want               error
		ofBinaryLog        bool // it makes no difference without one
	}{
		{"innodb_flush_log_at_trx_commit", "2", "1", sqljournal.ErrNotDurable, false},
		{"innodb_flush_log_at_trx_commit", "0", "1", sqljournal.ErrNotDurable, false},
		{"sync_binlog", "0", "1", sqljournal.ErrNotDurable, true},
		{"binlog_format", "'STATEMENT'", "'ROW'", sqljournal.ErrSetting, true},
		{"max_allowed_packet", "3145728", "4194304", sqljournal.ErrSetting, false},
		{"read_only", "1", "0", sqljournal.ErrReadOnly, false},
		{"autocommit", "0", "1", sqljournal.ErrSetting, false},
		{"completion_type", "'CHAIN'", "'NO_CHAIN'", sqljournal.ErrSetting, false},
	} {
		mustExec(t, db, "set global "+row.name+" = "+row.wrong)
		err := check(t, d)
		mustExec(t, db, "set global "+row.name+" = "+row.right)
		if row.ofBinaryLog && !hasBinaryLog {
			row.want = nil
		}
		mustFind(t, err, row.want)
	}
	mustFail(t, "in the end", check(t, d), nil)

	for _, interpolate := range []string{"false", "true"} {
		s := newScene(t, d, "intent", dbtest.Param("maxAllowedPacket", "0"), dbtest.Param("interpolateParams", interpolate))
		mustFail(t, "Check", s.j.Check(t.Context()), nil)
		s.x.record = []byte(strings.Repeat("'", 1<<20+1000))
		if err := s.pay(); err != nil {
			t.Errorf("interpolateParams=%s: %v", interpolate, err)
		}
		if e, err := s.j.Look(t.Context(), s.run.Key); err != nil || string(e.Record) != string(s.x.record) {
			t.Errorf("interpolateParams=%s: a record of %d bytes, %v", interpolate, len(e.Record), err)
		}
	}
}

// This test changes the server that all tests share, so it is not parallel.
func TestCheckFindsAServerThatForgets(t *testing.T) {
	d := dbtest.PostgreSQL(t)
	db := d.Open(t)
	for _, setting := range []string{"fsync", "full_page_writes"} {
		for _, change := range []struct {
			statement, value string
			want             error
		}{
			{"alter system set " + setting + " = off", "off", sqljournal.ErrNotDurable},
			{"alter system reset " + setting, "on", nil},
		} {
			mustExec(t, db, change.statement)
			mustExec(t, db, "select pg_reload_conf()")
			eventually(t, setting+" "+change.value, func() bool {
				var got string
				err := db.QueryRow("show " + setting).Scan(&got)
				return err == nil && got == change.value
			})
			mustFail(t, setting, check(t, d), change.want)
		}
	}
	standby, err := pgconn.Connect(t.Context(), d.URL(dbtest.Param("replication", "yes")))
	if err != nil {
		t.Fatal(err)
	}
	defer standby.Close(context.Background())
	err = check(t, d)
	mustFind(t, err, sqljournal.ErrNotDurable)
	if err != nil && !strings.Contains(err.Error(), "1 connected") {
		t.Errorf("it does not say how many: %v", err)
	}
}

func TestWrongConfiguration(t *testing.T) {
	t.Parallel()
	db := dbtest.SQLite(t).Open(t)
	mustPanic(t, `sqljournal.Schema: unknown dialect "oracle"`, func() { sqljournal.Schema("oracle") })
	mustPanic(t, "sqljournal.Transactional: the database is nil", func() { sqljournal.Transactional(nil, namespace) })
	mustPanic(t, "sqljournal.Intent: option 2 is nil", func() { sqljournal.Intent(db, namespace, sqljournal.SQLite(), nil) })
	for _, wrong := range []string{"", "{shop}", "shop}", "a{b"} {
		const want = "sqljournal.Intent: namespace must be a text that is not empty and has no braces"
		mustPanic(t, want, func() { sqljournal.Intent(db, wrong) })
	}
}
