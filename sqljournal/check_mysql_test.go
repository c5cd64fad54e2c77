package sqljournal_test

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// A version without SKIP LOCKED is refused. All other tests leave it out.
func TestCheckFindsAnOldVersion(t *testing.T) {
	t.Parallel()
	d := dbtest.AnyMySQL(t)
	var want error
	if d.Server().IsTooOld() {
		want = sqljournal.ErrSetting
	}
	mustFail(t, "Check", check(t, d), want)
	_, err := sqljournal.Intent(d.Open(t), namespace, sqljournal.MySQL()).Expire(t.Context())
	if (err != nil) != d.Server().IsTooOld() {
		t.Errorf("Expire: %v", err)
	}
}

// With the least max_allowed_packet that Check allows, the longest response is stored that is by default.
func TestLeastPacket(t *testing.T) {
	t.Parallel()
	d := dbtest.Own(t, dbtest.KindMySQL)
	mustExec(t, d.Open(t), "set global max_allowed_packet = 4194304")
	for _, interpolate := range []string{"false", "true"} {
		j := modes["intent"](d, t, dbtest.Param("maxAllowedPacket", "0"), dbtest.Param("interpolateParams", interpolate))
		if err := j.Check(t.Context()); err != nil {
			t.Errorf("Check: %v", err)
		}
		run, record := begin(t, j, newRun(time.Hour)), strings.Repeat("'", 1<<20+1000)
		_, ctx := protected(j, run, record)
		if err := j.InTx(ctx, nil, func(*sql.Tx) error { return nil }); err != nil {
			t.Errorf("interpolateParams=%s: %v", interpolate, err)
		}
		if e, err := j.Look(t.Context(), run.Key); err != nil || string(e.Record) != record {
			t.Errorf("interpolateParams=%s: a record of %d bytes, %v", interpolate, len(e.Record), err)
		}
	}
}

// In these modes of MariaDB an empty text is NULL, or other functions treat NULL as one.
func TestCheckFindsModesOfMariaDB(t *testing.T) {
	t.Parallel()
	d := dbtest.MySQL(t)
	if !d.Server().IsMariaDB() {
		t.Skip("left out: MySQL does not have these modes")
	}
	for _, mode := range []string{"EMPTY_STRING_IS_NULL", "ORACLE"} {
		err := check(t, d, dbtest.Param("sql_mode", "'STRICT_ALL_TABLES,"+mode+"'"))
		mustFail(t, mode, err, sqljournal.ErrSetting)
		if err != nil && (!strings.Contains(err.Error(), "sql_mode is ") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: got %v, want sql_mode alone", mode, err)
		}
	}
}

// Settings that only the whole server has. Check finds each of them, and nothing else.
func TestCheckFindsSettingsOfTheServer(t *testing.T) {
	t.Parallel()
	d := dbtest.Own(t, dbtest.KindMySQL)
	db := d.Open(t)
	for _, row := range []struct {
		name, value string
		want        error
		ofBinaryLog bool // it makes no difference without one
	}{
		{"innodb_flush_log_at_trx_commit", "2", sqljournal.ErrNotDurable, false},
		{"innodb_flush_log_at_trx_commit", "0", sqljournal.ErrNotDurable, false},
		{"sync_binlog", "0", sqljournal.ErrNotDurable, true},
		{"binlog_format", "'STATEMENT'", sqljournal.ErrSetting, true},
		{"max_allowed_packet", "3145728", sqljournal.ErrSetting, false},
		{"read_only", "1", sqljournal.ErrReadOnly, false},
		{"autocommit", "0", sqljournal.ErrSetting, false},
		{"completion_type", "'CHAIN'", sqljournal.ErrSetting, false},
	} {
		var before string
		var hasBinaryLog bool
		if err := db.QueryRow("select @@global."+row.name+", @@log_bin").Scan(&before, &hasBinaryLog); err != nil {
			t.Fatal(err)
		}
		set := func(value string) { mustExec(t, db, "set global "+row.name+" = "+value) }
		set(row.value)
		err := sqljournal.Intent(d.Open(t), namespace, sqljournal.MySQL()).Check(t.Context())
		if before = strings.TrimSpace(before); strings.ContainsAny(before, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
			before = "'" + before + "'"
		}
		set(before)
		if row.ofBinaryLog && !hasBinaryLog {
			row.want = nil
		}
		mustFail(t, row.name, err, row.want)
		if err != nil && strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%s: more than the finding: %v", row.name, err)
		}
	}
	if err := check(t, d); err != nil {
		t.Errorf("in the end: %v", err)
	}
}
