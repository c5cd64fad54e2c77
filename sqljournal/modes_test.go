package sqljournal_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// Everything works in all of pgx's modes, of which exec and simple_protocol are for a transaction pooler: they prepare
// nothing and tell the server no types of parameters.
func TestExecModes(t *testing.T) {
	t.Parallel()
	for _, exec := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		for mode := range modes {
			t.Run(exec+" "+mode, func(t *testing.T) {
				t.Parallel()
				testExecMode(t, mode, dbtest.Param("default_query_exec_mode", exec))
			})
		}
	}
}

func testExecMode(t *testing.T, mode string, setting dbtest.Setting) {
	d := dbtest.PostgreSQL(t)
	j, db := modes[mode](d, t, setting), withEffects(t, d)
	if err := j.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	run := begin(t, j, newRun(time.Hour))
	_, ctx := protected(j, run, "response")
	if mode == "intent" {
		if err := j.Note(ctx, []byte("order 7")); err != nil {
			t.Errorf("Note: %v", err)
		}
	}
	e, err := j.FindEntry(t.Context(), run, true)
	if err != nil || e.State != journal.Absent && e.State != journal.Begun {
		t.Errorf("the truth before the commit: got %v, %v", e.State, err)
	}
	if err := j.InTx(ctx, nil, func(tx *sql.Tx) error { return take(tx, run) }); err != nil {
		t.Errorf("InTx: %v", err)
	}
	e, err = j.FindEntry(t.Context(), run, true)
	mustBe(t, "the truth after it", e, err, journal.Done, "response")
	mustHaveEffects(t, db, run, 1)

	run = begin(t, j, newRun(time.Hour))
	_, ctx = protected(j, run, "by pgx")
	conn, err := pgx.Connect(t.Context(), d.URL(setting))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	err = j.Around(ctx, func(complete func(sqljournal.Execer) error) error {
		return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return complete(sqljournal.Pgx(tx)) })
	})
	if err != nil {
		t.Errorf("Around: %v", err)
	}
	mustLook(t, j, run.Key, journal.Done, "by pgx")
	testSweepAndExpire(t, d, j)
}

// testSweepAndExpire ends one of two unfinished rows in each way, and lets all rows expire.
func testSweepAndExpire(t *testing.T, d dbtest.Database, j *sqljournal.Journal) {
	t.Helper()
	db := d.Open(t)
	runs := unfinishedRows(t, d, db, 2)
	n, err := j.Sweep(t.Context(), time.Minute, time.Hour, func(ctx context.Context, u sqljournal.Unfinished) error {
		if u.Key == runs[0].Key {
			return u.Free(ctx, db)
		}
		return u.Done(ctx, db, time.Hour, nil)
	})
	if n != 2 || err != nil {
		t.Errorf("Sweep: got %d, %v", n, err)
	}
	mustLook(t, j, runs[0].Key, journal.Absent, "")
	mustLook(t, j, runs[1].Key, journal.Done, "")
	mustExec(t, db, "update onceguard_journal set expires_at = now() - interval '1 second'")
	if n, err := j.Expire(t.Context()); n != 3 || err != nil {
		t.Errorf("Expire: got %d, %v", n, err)
	}
}
