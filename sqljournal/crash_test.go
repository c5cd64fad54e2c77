package sqljournal_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// fault: the database crashes after it has committed and before its reply arrives, and recovers. InTx succeeds.
func TestDatabaseCrashesAfterCommit(t *testing.T) {
	t.Parallel()
	eachServerMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		f := newFaulty(t, dbtest.Own(t, d.Kind()), mode)
		held := f.proxy.HoldReply(dbtest.Statement("commit"))
		paid := make(chan error, 1)
		go func() { paid <- f.pay() }()
		held.Wait(t)
		f.d.Server().Crash(t)
		f.proxy.Cut()
		f.d.Server().Restart(t)
		f.db = f.d.Open(t) // the connections of the other pool are broken
		err := <-paid
		f.dropBroken(t)
		f.mustBeCommitted(t, err)
	})
}

// fault: the database crashes before COMMIT arrives, and recovers. Nothing has happened.
func TestDatabaseCrashesBeforeCommit(t *testing.T) {
	t.Parallel()
	eachServerMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		f := newFaulty(t, dbtest.Own(t, d.Kind()), mode)
		late := f.proxy.Delay(dbtest.Statement("commit"))
		paid := make(chan error, 1)
		go func() { paid <- f.pay() }()
		late.Wait(t)
		f.awaitProbe(t)
		f.d.Server().Crash(t)
		late.Lift()
		f.d.Server().Restart(t)
		f.db = f.d.Open(t) // the connections of the other pool are broken
		if err := <-paid; err == nil || err == journal.ErrAnswered {
			t.Errorf("InTx: got error %v, want the connection's", err)
		}
		f.dropBroken(t)
		mustStand(t, f.j, f.db, f.run)
		f.mustBeCommitted(t, f.pay())
	})
}

// dropBroken lets the journal's pool find out which of its connections the crash has broken: each fails one look.
func (f *faulty) dropBroken(t *testing.T) {
	t.Helper()
	for tries := 0; ; tries++ {
		_, err := f.j.Look(t.Context(), f.run.Key)
		if err == nil {
			return
		}
		if tries == 20 {
			t.Fatalf("Look: %v", err)
		}
	}
}

// Every statement finds its rows by an index, in a table with many rows.
func TestStatementsUseIndexes(t *testing.T) {
	t.Parallel()
	d := dbtest.PostgreSQL(t)
	db := d.Open(t, dbtest.Param("default_query_exec_mode", "simple_protocol"))
	mustExec(t, db, `insert into onceguard_journal (key, token, state, until) select case when i % 2 = 0 then 'test:{' else 'other:{' end || 'begun' || i, gen_random_uuid(), 1,
		now() + i * interval '1 second' from generate_series(-10, 3000) i`)
	mustExec(t, db, `insert into onceguard_journal (key, token, state, expires_at) select case when i % 2 = 0 then 'test:{' else 'other:{' end || 'done' || i, gen_random_uuid(), 2,
		now() + i * interval '1 second' from generate_series(-10, 3000) i`)
	mustExec(t, db, "analyze onceguard_journal")
	for statement, args := range sqljournal.Statements() {
		if plan := planOf(t, db, statement, args...); strings.Contains(plan, "Seq Scan") || !strings.Contains(plan, "Index") {
			t.Errorf("the plan of%s\nis\n%s", statement, plan)
		}
	}
}

// planOf returns PostgreSQL's plan of a statement.
func planOf(t *testing.T, db *sql.DB, statement string, args ...any) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "explain "+statement, args...)
	if err != nil {
		t.Fatalf("%v in\n%s", err, statement)
	}
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(plan, "\n")
}
