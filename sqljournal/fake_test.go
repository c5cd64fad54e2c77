package sqljournal_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// namespace is that of the runs and Lockers of these tests.
const namespace = "payments-api"

// modes are both kinds of journal.
var modes = map[string]func(dbtest.Database, testing.TB, ...dbtest.Setting) *sqljournal.Journal{
	"transactional": func(d dbtest.Database, t testing.TB, opts ...dbtest.Setting) *sqljournal.Journal {
		return watched(sqljournal.Transactional(d.Open(t, opts...), namespace, d.Options()...))
	},
	"intent": func(d dbtest.Database, t testing.TB, opts ...dbtest.Setting) *sqljournal.Journal {
		return watched(sqljournal.Intent(d.Open(t, opts...), namespace, d.Options()...))
	},
}

// eachMode runs a test for each kind of database and of journal.
func eachMode(t *testing.T, test func(t *testing.T, d dbtest.Database, mode string)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		for mode := range modes {
			t.Run(mode, func(t *testing.T) { test(t, d, mode) })
		}
	})
}

type fakeKey struct{}

// watched lets a journal find the runs of this file. On a busy machine the journal also has more time to find out what
// has become of a transaction.
func watched(j *sqljournal.Journal) *sqljournal.Journal {
	sqljournal.SetProbeTime(j, 30*time.Second)
	sqljournal.SetExecution(j, func(ctx context.Context) sqljournal.Execution {
		x, _ := ctx.Value(fakeKey{}).(*fakeExecution)
		if x == nil {
			return nil
		}
		x.journal = j
		return x
	})
	return j
}

// fakeExecution stands in for a middleware.Execution: it answers as that does, for a response that is only a text.
type fakeExecution struct {
	journal middleware.Journal // set by the journal that finds it

	run    middleware.JournalRun
	record []byte // what the handler has written
	keep   time.Duration

	mu        sync.Mutex
	committed bool
	answer    []byte // another's record, after ErrAnswered; nil if there was none or it is not known
	unknown   bool   // commit-unknown
	asked     int    // how often it has asked for the truth
}

// protected returns a run of a handler, and its context.
func protected(run middleware.JournalRun, record string) (*fakeExecution, context.Context) {
	x := &fakeExecution{run: run, record: []byte(record), keep: time.Hour}
	return x, context.WithValue(context.Background(), fakeKey{}, x)
}

func (x *fakeExecution) Journaled() (middleware.JournalRun, middleware.Journal, bool) {
	return x.run, x.journal, true
}

func (x *fakeExecution) Transact(
	do func(func() (middleware.Commit, error)) error,
	truth func(middleware.JournalRun, bool) (middleware.JournalEntry, error),
) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.committed {
		return middleware.ErrTwice
	}
	sealed := false
	err := do(func() (middleware.Commit, error) {
		if len(x.record) == 0 {
			return middleware.Commit{}, middleware.ErrNoResponse
		}
		sealed = true
		return middleware.Commit{Run: x.run, Record: x.record, Keep: x.keep}, nil
	})
	if err == nil {
		x.committed = true
		return nil
	}
	x.asked++
	e, unknown := truth(x.run, sealed)
	switch {
	case unknown != nil:
		x.unknown = true
		return middleware.ErrAnswered
	case e.State == middleware.Absent || e.State == middleware.Begun:
		return err
	case e.State == middleware.Done && e.Token == x.run.Token && string(e.Record) == string(x.record):
		x.committed = true
		return nil
	}
	x.answer = e.Record
	return middleware.ErrAnswered
}

// newRun returns a run under a key that no other has.
func newRun(limit time.Duration) middleware.JournalRun {
	return middleware.JournalRun{
		Key: namespace + ":{0000}" + uuid.NewString(), Token: uuid.NewString(), Note: []byte("fingerprint"), Limit: limit,
	}
}

// retried returns the run of a later request with the same key.
func retried(run middleware.JournalRun) middleware.JournalRun {
	run.Token, run.Intent = uuid.NewString(), false
	return run
}

// begin begins a run that nothing hinders.
func begin(t testing.TB, j *sqljournal.Journal, run middleware.JournalRun) middleware.JournalRun {
	t.Helper()
	e, err := j.Begin(t.Context(), run)
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	switch e.State {
	case middleware.Begun:
		run.Intent = true
	case middleware.Absent:
	default:
		t.Fatalf("Begin: got %v, want begun or absent", e.State)
	}
	return run
}

// mustBe checks an entry's state and record, and that its other fields are what they have to be.
func mustBe(t testing.TB, what string, e middleware.JournalEntry, err error, state middleware.JournalState, record string) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	if e.State != state || string(e.Record) != record {
		t.Errorf("%s: got %v %q, want %v %q", what, e.State, e.Record, state, record)
	}
	hasLeft := state == middleware.Begun || state == middleware.Running || state == middleware.Done
	if (e.Left > 0) != hasLeft {
		t.Errorf("%s: %v has %v left", what, e.State, e.Left)
	}
	if record == "" && e.Record != nil {
		t.Errorf("%s: %v with an empty record, want none", what, e.State)
	}
	hasNote := state == middleware.Begun || state == middleware.Running || state == middleware.Unfinished
	if hasNote != (string(e.Note) == "fingerprint") {
		t.Errorf("%s: %v with the note %q", what, e.State, e.Note)
	}
	if state == middleware.Absent && (e.Token != "" || e.Note != nil) {
		t.Errorf("%s: absent, and yet with the token %q and the note %q", what, e.Token, e.Note)
	}
}

// mustLook checks what stands under a key.
func mustLook(t testing.TB, j *sqljournal.Journal, key string, state middleware.JournalState, record string) {
	t.Helper()
	e, err := j.Look(context.Background(), key)
	mustBe(t, "Look", e, err, state, record)
}

func mustFail(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got error %v, want %v", what, got, want)
	}
}

// awaitState waits for a time of the database's clock.
func awaitState(t testing.TB, j *sqljournal.Journal, key string, want middleware.JournalState) {
	t.Helper()
	eventually(t, want.String(), func() bool {
		e, err := j.Look(context.Background(), key)
		if err != nil {
			t.Fatal(err)
		}
		return e.State == want
	})
}

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(30 * time.Second); !done(); <-poll.C {
		if time.Now().After(deadline) {
			t.Fatalf("still waiting: %s", what)
		}
	}
}
