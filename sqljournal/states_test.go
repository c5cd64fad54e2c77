package sqljournal_test

import (
	"database/sql"
	"strings"
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
type standing string

const (
	nothing         standing = "nothing"
	ownBegun        standing = "own begun"
	ownUnfinished   standing = "own unfinished"
	ownTombstone    standing = "own done without a record"
	ownDone         standing = "own done"
	othersRunning   standing = "another's running"
	othersUnfished  standing = "another's unfinished"
	othersDone      standing = "another's done"
	othersTombstone standing = "another's done without a record"
	othersExpired   standing = "another's expired"
	ownExpired      standing = "own expired"
)

// put brings it about under the key of run.
func (s standing) put(t *testing.T, d dbtest.Database, db *sql.DB, run journal.Run) {
	t.Helper()
	note, token := sqljournal.JoinNote(run.Note, nil), uuid.NewString()
	if strings.HasPrefix(string(s), "own ") {
		token = run.Token
	}
	switch s {
	case nothing:
	case ownBegun, othersRunning:
		insertRow(t, d, db, run.Key, token, 1, note, nil, time.Hour)
	case ownUnfinished, othersUnfished:
		insertRow(t, d, db, run.Key, token, 1, note, nil, -time.Minute)
	case ownDone, othersDone:
		insertRow(t, d, db, run.Key, token, 2, nil, []byte("stored"), time.Hour)
	case ownTombstone, othersTombstone:
		insertRow(t, d, db, run.Key, token, 2, nil, nil, time.Hour)
	case othersExpired, ownExpired:
		insertRow(t, d, db, run.Key, token, 2, nil, []byte("stored"), -time.Minute)
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
		t.Run(string(row.before), func(t *testing.T) {
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
