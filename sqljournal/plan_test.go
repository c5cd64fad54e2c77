package sqljournal_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// Every statement finds its rows by an index, in a table with many rows, also with a plan for all parameters: PostgreSQL makes one
// after a prepared statement was executed five times. Sweep and Expire read the rows that are due, by the index on their time. All
// others find their row by its key, even if no run has a row that is not done, so that the index on those looks cheaper.
func TestStatementsUseIndexes(t *testing.T) {
	t.Parallel()
	const insert = `insert into onceguard_journal (key, token, state, %s) select case when i %% 2 = 0 then 'test:{' else 'other:{' end || '%s' || i,
		gen_random_uuid(), %d, now() + i * interval '1 second' from generate_series(-10, 3000) i`
	db := dbtest.PostgreSQL(t).Open(t, dbtest.Param("default_query_exec_mode", "simple_protocol"))
	db.SetMaxOpenConns(1)
	mustExec(t, db, fmt.Sprintf(insert, "expires_at", "done", 2))
	for _, runs := range []string{"select 1", fmt.Sprintf(insert, "until", "begun", 1)} {
		mustExec(t, db, runs)
		mustExec(t, db, "analyze onceguard_journal")
		for _, plans := range []string{"auto", "force_generic_plan"} {
			mustExec(t, db, "set plan_cache_mode = "+plans)
			for statement, params := range sqljournal.Statements() {
				mustExec(t, db, "deallocate all")
				mustExec(t, db, "prepare s as "+statement)
				var plan strings.Builder
				rows, err := db.QueryContext(t.Context(), "explain execute s("+strings.Join(params, ", ")+")")
				if err != nil {
					t.Fatalf("%v in\n%s", err, statement)
				}
				for rows.Next() {
					var line string
					if err := rows.Scan(&line); err != nil {
						t.Fatal(err)
					}
					plan.WriteString(line + "\n")
				}
				mustFail(t, "explain", rows.Err(), nil)
				index := "onceguard_journal_pkey"
				switch {
				case strings.Contains(statement, "skip locked") && strings.Contains(statement, "update onceguard"):
					index = "onceguard_journal_until"
				case strings.Contains(statement, "skip locked"):
					index = "onceguard_journal_expires"
				}
				if !strings.Contains(plan.String(), index) || strings.Contains(plan.String(), "Seq Scan") {
					t.Errorf("%s: the plan of%s\nis\n%s", plans, statement, &plan)
				}
			}
		}
	}
}
