package sqljournal_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// oneConnection returns a journal and its pool, which has one connection: all statements are prepared in it.
func oneConnection(t *testing.T, mode string) (*sqljournal.Journal, *sql.DB) {
	t.Helper()
	db := dbtest.PostgreSQL(t).Open(t)
	db.SetMaxOpenConns(1)
	if mode == "intent" {
		return sqljournal.Intent(db, namespace), db
	}
	return sqljournal.Transactional(db, namespace), db
}

// preparedOf returns the name of the prepared statement whose text contains part, and how often it was executed by a
// plan for all parameters and by one for those of the call. PostgreSQL 13 does not count: both are -1.
func preparedOf(t *testing.T, db *sql.DB, part string) (name string, generic, custom int) {
	t.Helper()
	err := db.QueryRowContext(t.Context(), `select name, coalesce((to_jsonb(p)->>'generic_plans')::int, -1),
			coalesce((to_jsonb(p)->>'custom_plans')::int, -1) from pg_prepared_statements p
		where position($1::text in statement) > 0 and position('pg_prepared' in statement) = 0`, part).Scan(&name, &generic, &custom)
	if err != nil {
		t.Fatalf("the prepared statement with %q: %v", part, err)
	}
	return name, generic, custom
}

// The plan of the statement that ends an intent run finds the row by its key, even if it was made when no other run had a
// row.
func TestEndFindsItsRowByTheKey(t *testing.T) {
	t.Parallel()
	j, db := oneConnection(t, "intent")
	mustExec(t, db, `insert into onceguard_journal (key, token, state, expires_at)
		select 'done' || i, gen_random_uuid(), 2, now() + interval '1 hour' from generate_series(1, 3000) i`)
	mustExec(t, db, "analyze onceguard_journal")
	for range 10 {
		run := begin(t, j, newRun(time.Hour))
		if _, err := j.End(t.Context(), run, []byte("stored"), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	name, generic, _ := preparedOf(t, db, "update onceguard_journal set state = 2")
	if generic == 0 {
		t.Fatal("the statement was planned anew each time")
	}
	plan := planOf(t, db, fmt.Sprintf("execute %s('key', '%s', null, '1')", name, uuid.NewString()))
	if !strings.Contains(plan, "onceguard_journal_pkey") {
		t.Errorf("the plan is\n%s", plan)
	}
}

// Sweep and Expire read the rows that are due, by the index on their time, also with a plan for all namespaces. An index on
// the key would also read those that are not due.
func TestSweepAndExpireFindTheirRowsByTime(t *testing.T) {
	t.Parallel()
	j, db := oneConnection(t, "intent")
	mustExec(t, db, "set plan_cache_mode = force_generic_plan") // it looks dearer than one for the sweep's own parameters
	for column, state := range map[string]int{"until": 1, "expires_at": 2} {
		mustExec(t, db, fmt.Sprintf(`insert into onceguard_journal (key, token, state, %s)
			select (case when i %% 2 = 0 then '%s' else 'other' end) || ':{0000}%s' || i, gen_random_uuid(), %d, now() + i * interval '1 second'
			from generate_series(1, 6000) i`, column, namespace, column, state))
	}
	mustExec(t, db, "analyze onceguard_journal")
	for range 10 {
		_, err := j.Sweep(t.Context(), 0, time.Hour, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := j.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for part, c := range map[string]struct{ params, index string }{
		"update onceguard_journal set token": {"'" + uuid.NewString() + "', 1, 1, null, 'shop:{'", "onceguard_journal_until"},
		"delete from onceguard_journal":      {"'shop:{'", "onceguard_journal_expires"},
	} {
		name, generic, _ := preparedOf(t, db, part)
		if generic == 0 {
			t.Fatalf("%s: the statement was planned anew each time", part)
		}
		plan := planOf(t, db, fmt.Sprintf("execute %s(%s)", name, c.params))
		if !strings.Contains(plan, c.index) || strings.Contains(plan, "Seq Scan") {
			t.Errorf("the plan is\n%s", plan)
		}
	}
}
