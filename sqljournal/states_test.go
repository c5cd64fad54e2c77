package sqljournal_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

const (
	absent     = journal.Absent
	begun      = journal.Begun
	running    = journal.Running
	unfinished = journal.Unfinished
	done       = journal.Done
)

// standing is what stands under a key before an operation, of the run that the operation is for or of another.
type standing struct {
	name   string
	isOwn  bool
	state  int    // of the row; 0: there is none
	record string // empty: none
	left   time.Duration
}

var (
	nothing         = standing{name: "nothing"}
	ownBegun        = standing{"own begun", true, 1, "", time.Hour}
	ownUnfinished   = standing{"own unfinished", true, 1, "", -time.Minute}
	ownTombstone    = standing{"own done without a record", true, 2, "", time.Hour}
	ownDone         = standing{"own done", true, 2, "stored", time.Hour}
	ownExpired      = standing{"own expired", true, 2, "stored", -time.Minute}
	othersRunning   = standing{"another's running", false, 1, "", time.Hour}
	othersUnfished  = standing{"another's unfinished", false, 1, "", -time.Minute}
	othersTombstone = standing{"another's done without a record", false, 2, "", time.Hour}
	othersDone      = standing{"another's done", false, 2, "stored", time.Hour}
	othersExpired   = standing{"another's expired", false, 2, "stored", -time.Minute}
)

// put brings it about under the key of run.
func (s standing) put(t *testing.T, d dbtest.Database, db *sql.DB, run journal.Run) {
	t.Helper()
	note, token := sqljournal.JoinNote(run.Note, nil), uuid.NewString()
	if s.isOwn {
		token = run.Token
	}
	if s.state == 2 {
		note = nil
	}
	if s.state != 0 {
		insertRow(t, d, db, run.Key, token, s.state, note, orNone(s.record), s.left)
	}
}

// insertRow inserts a row whose limit or expiry is that far away.
func insertRow(t testing.TB, d dbtest.Database, db *sql.DB, key, token string, state int, note, record []byte, left time.Duration) {
	t.Helper()
	column := "until"
	if state == 2 {
		column = "expires_at"
	}
	columns, values := `key, token, state, note, record, began_at, `+column, `$1::text, $2::text::uuid, $3::int, $4::bytea, $5::bytea, `
	switch d.Kind {
	case dbtest.KindMySQL:
		columns, values = "onceguard_journal."+columns, "?, ?, ?, ?, ?, "
	case dbtest.KindSQLite:
		values = "?, ?, ?, ?, ?, "
	}
	statement := "insert into onceguard_journal (" + columns + ") values (" + values + d.Now() + ", " + d.Now() + " + " + d.Interval(left) + ")"
	args := []any{key, token, state, nil, nil}
	if note != nil {
		args[3] = note
	}
	if record != nil {
		args[4] = record
	}
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("inserting a row: %v", err)
	}
}

// answer is what an operation has to answer.
type answer struct {
	state  journal.State
	record string
}

// statesTable has for each row what the operations answer.
var statesTable = []struct {
	before standing
	look   answer

	beginIntent, beginTransactional answer

	endIntent, endTransactional answer // with the record "new"
	free                        answer // End without a record
}{
	{nothing, answer{absent, ""}, answer{begun, ""}, answer{absent, ""}, answer{absent, ""}, answer{done, "new"}, answer{absent, ""}},
	{ownBegun, answer{running, ""}, answer{begun, ""}, answer{begun, ""}, answer{done, "new"}, answer{begun, ""}, answer{absent, ""}},
	{ownDone, answer{done, "stored"}, answer{done, "stored"}, answer{done, "stored"}, answer{done, "stored"}, answer{done, "stored"}, answer{done, "stored"}},
	{othersRunning, answer{running, ""}, answer{running, ""}, answer{running, ""}, answer{running, ""}, answer{running, ""}, answer{running, ""}},
	{othersUnfished, answer{unfinished, ""}, answer{unfinished, ""}, answer{unfinished, ""}, answer{unfinished, ""}, answer{unfinished, ""}, answer{unfinished, ""}},
	{othersDone, answer{done, "stored"}, answer{done, "stored"}, answer{done, "stored"}, answer{done, "stored"}, answer{done, "stored"}, answer{done, "stored"}},
	{othersTombstone, answer{done, ""}, answer{done, ""}, answer{done, ""}, answer{done, ""}, answer{done, ""}, answer{done, ""}},
	{othersExpired, answer{absent, ""}, answer{begun, ""}, answer{absent, ""}, answer{absent, ""}, answer{done, "new"}, answer{absent, ""}},
	{ownExpired, answer{absent, ""}, answer{begun, ""}, answer{absent, ""}, answer{absent, ""}, answer{done, "new"}, answer{absent, ""}},
}

// Every operation in every state answers what the table says, answers the same once more, and leaves what it answers; also
// with connections that do not prepare statements, and however the driver counts the rows that an UPDATE has changed.
func TestStates(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d dbtest.Database, mode string) { testStates(t, d, mode) })
	for _, c := range []struct {
		kind        dbtest.Kind
		name, value string
	}{
		{dbtest.KindPostgreSQL, "default_query_exec_mode", "exec"},
		{dbtest.KindPostgreSQL, "default_query_exec_mode", "simple_protocol"},
		{dbtest.KindMySQL, "clientFoundRows", "true"},
	} {
		t.Run(c.name+" "+c.value, func(t *testing.T) {
			t.Parallel()
			for mode := range modes {
				t.Run(mode, func(t *testing.T) { testStates(t, dbtest.New(t, c.kind), mode, dbtest.Param(c.name, c.value)) })
			}
		})
	}
}

func testStates(t *testing.T, d dbtest.Database, mode string, opts ...dbtest.Setting) {
	j, db := modes[mode](d, t, opts...), d.Open(t)
	for _, row := range statesTable {
		t.Run(row.before.name, func(t *testing.T) {
			at := func() journal.Run {
				run := newRun(time.Hour)
				run.Intent = mode == "intent"
				row.before.put(t, d, db, run)
				return run
			}
			begin, end := row.beginTransactional, row.endTransactional
			if mode == "intent" {
				begin, end = row.beginIntent, row.endIntent
			}
			run := at()
			mustLook(t, j, run.Key, row.look.state, row.look.record)
			for _, what := range []string{"Begin", "Begin again"} {
				e, err := j.Begin(t.Context(), run)
				mustBe(t, what, e, err, begin.state, begin.record)
			}
			run = at()
			for _, what := range []string{"End", "End again"} {
				e, err := j.End(t.Context(), run, []byte("new"), time.Hour)
				mustBe(t, what, e, err, end.state, end.record)
			}
			if end.state == done {
				mustLook(t, j, run.Key, done, end.record)
			}
			run = at()
			for _, what := range []string{"free", "free again"} {
				e, err := j.End(t.Context(), run, nil, 0)
				mustBe(t, what, e, err, row.free.state, row.free.record)
			}
			mustLook(t, j, run.Key, row.free.state, row.free.record)
		})
	}
}
