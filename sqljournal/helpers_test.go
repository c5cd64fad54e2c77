package sqljournal_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/internal/inrun"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// namespace is that of the runs and Lockers of these tests.
const namespace = "payments-api"

// modes are both kinds of journal.
var modes = map[string]func(dbtest.Database, testing.TB, ...dbtest.Setting) *sqljournal.Journal{
	"transactional": func(d dbtest.Database, t testing.TB, opts ...dbtest.Setting) *sqljournal.Journal {
		return watched(sqljournal.Transactional(d.Open(t, opts...), namespace, d.Kind.Options()...))
	},
	"intent": func(d dbtest.Database, t testing.TB, opts ...dbtest.Setting) *sqljournal.Journal {
		return watched(sqljournal.Intent(d.Open(t, opts...), namespace, d.Kind.Options()...))
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

// watched gives a journal more time to find out what has become of a transaction, for a busy machine.
func watched(j *sqljournal.Journal) *sqljournal.Journal {
	sqljournal.SetProbeTime(j, 30*time.Second)
	return j
}

// fakeExecution is the run of a door whose response is only a text. It answers as the middleware does.
type fakeExecution struct {
	journal journal.Journal

	run    journal.Run
	record []byte // what the handler has written
	keep   time.Duration

	mu        sync.Mutex
	committed bool
	answer    []byte // another's record, after ErrAnswered; nil if there was none or it is not known
	unknown   bool   // commit-unknown
}

// protected returns a run of a handler that was begun in j, and its context.
func protected(j *sqljournal.Journal, run journal.Run, record string) (*fakeExecution, context.Context) {
	x := &fakeExecution{journal: j, run: run, record: []byte(record), keep: time.Hour}
	return x, context.WithValue(context.Background(), inrun.Key{}, x)
}

func (x *fakeExecution) Journaled() (journal.Run, journal.Journal) { return x.run, x.journal }

func (x *fakeExecution) Transact(
	do func(func() (journal.Commit, error)) error,
	truth func(journal.Run, bool) (journal.Entry, error),
) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	sealed := false
	err := do(func() (journal.Commit, error) {
		if len(x.record) == 0 {
			return journal.Commit{}, journal.ErrNoResponse
		}
		sealed = true
		return journal.Commit{Run: x.run, Record: x.record, Keep: x.keep}, nil
	})
	if err == nil {
		x.committed = true
		return nil
	}
	e, unknown := truth(x.run, sealed)
	switch {
	case unknown != nil:
		x.unknown = true
		return journal.ErrAnswered
	case e.State == journal.Absent || e.State == journal.Begun:
		return err
	case e.State == journal.Done && e.Token == x.run.Token && string(e.Record) == string(x.record):
		x.committed = true
		return nil
	}
	x.answer = e.Record
	return journal.ErrAnswered
}

// newRun returns a run under a key that no other has.
func newRun(limit time.Duration) journal.Run {
	return journal.Run{
		Key: namespace + ":{0000}" + uuid.NewString(), Token: uuid.NewString(), Note: []byte("fingerprint"), Limit: limit,
	}
}

// retried returns the run of a later request with the same key.
func retried(run journal.Run) journal.Run {
	run.Token, run.Intent = uuid.NewString(), false
	return run
}

// begin begins a run that nothing hinders.
func begin(t testing.TB, j *sqljournal.Journal, run journal.Run) journal.Run {
	t.Helper()
	e, err := j.Begin(t.Context(), run)
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	switch e.State {
	case journal.Begun:
		run.Intent = true
	case journal.Absent:
	default:
		t.Fatalf("Begin: got %v, want begun or absent", e.State)
	}
	return run
}

// mustBe checks an entry's state and record, and that its other fields are what they have to be.
func mustBe(t testing.TB, what string, e journal.Entry, err error, state journal.State, record string) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	if e.State != state || string(e.Record) != record {
		t.Errorf("%s: got %v %q, want %v %q", what, e.State, e.Record, state, record)
	}
	hasLeft := state == journal.Begun || state == journal.Running || state == journal.Done
	if (e.Left > 0) != hasLeft && state != journal.Unfinished { // which has time left while it is handed out
		t.Errorf("%s: %v has %v left", what, e.State, e.Left)
	}
	if record == "" && e.Record != nil {
		t.Errorf("%s: %v with an empty record, want none", what, e.State)
	}
	hasNote := state == journal.Begun || state == journal.Running || state == journal.Unfinished
	mayHaveNote := state == journal.Done // if a sweep has ended it
	if hasNote != (string(e.Note) == "fingerprint") && !mayHaveNote {
		t.Errorf("%s: %v with the note %q", what, e.State, e.Note)
	}
	if state == journal.Absent && (e.Token != "" || e.Note != nil) {
		t.Errorf("%s: absent, and yet with the token %q and the note %q", what, e.Token, e.Note)
	}
}

// mustLook checks what stands under a key.
func mustLook(t testing.TB, j *sqljournal.Journal, key string, state journal.State, record string) {
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
func awaitState(t testing.TB, j *sqljournal.Journal, key string, want journal.State) {
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

func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		if got := recover(); got != want {
			t.Errorf("got the panic %v, want %q", got, want)
		}
	}()
	f()
}

func mustExec(t testing.TB, e execer, statement string, args ...any) {
	t.Helper()
	if _, err := e.ExecContext(context.Background(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

type execer = sqljournal.Execer

func exec(e execer, statement string) error {
	_, err := e.ExecContext(context.Background(), statement)
	return err
}

// withEffects returns a pool of connections to a database with a table for the effects of handlers.
func withEffects(t testing.TB, d dbtest.Database) *sql.DB {
	t.Helper()
	db := d.Open(t)
	mustExec(t, db, "create table if not exists effects (id text not null)")
	return db
}

// take takes effect.
func take(e execer, run journal.Run) error {
	return exec(e, "insert into effects (id) values ('"+run.Key+"')")
}

func mustHaveEffects(t testing.TB, db *sql.DB, run journal.Run, want int) {
	t.Helper()
	mustCount(t, db, want, "effects where id = '"+run.Key+"'")
}

// mustCount checks how many rows there are.
func mustCount(t testing.TB, db *sql.DB, want int, rows string) {
	t.Helper()
	var got int
	if err := db.QueryRow("select count(*) from " + rows).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("got %d of %s, want %d", got, rows, want)
	}
}

// scene is a run that has begun in a journal, behind a proxy if its database has a server.
type scene struct {
	*testing.T
	d     dbtest.Database
	db    *sql.DB // past the proxy
	proxy *dbtest.Proxy
	j     *sqljournal.Journal
	run   journal.Run
	x     *fakeExecution
	ctx   context.Context
}

func newScene(t *testing.T, d dbtest.Database, mode string, opts ...dbtest.Setting) *scene {
	t.Helper()
	s := &scene{T: t, d: d, db: withEffects(t, d)}
	if d.Server != nil {
		s.proxy = dbtest.NewProxy(t, d.Server)
		opts = append(opts, dbtest.Through(s.proxy))
	}
	s.j = modes[mode](d, t, opts...)
	s.begin(newRun(time.Hour))
	return s
}

// begin begins another run.
func (s *scene) begin(run journal.Run) {
	s.Helper()
	s.run = begin(s, s.j, run)
	s.x, s.ctx = protected(s.j, s.run, "response")
}

// inTx runs f in the handler's transaction, after its effect.
func (s *scene) inTx(f func(*sql.Tx) error) error {
	return s.j.InTx(s.ctx, nil, func(tx *sql.Tx) error { return errors.Join(take(tx, s.run), f(tx)) })
}

// pay runs the handler's transaction.
func (s *scene) pay() error { return s.inTx(func(*sql.Tx) error { return nil }) }

// mustBeCommitted checks that InTx has succeeded, and rightly so.
func (s *scene) mustBeCommitted(err error) {
	s.Helper()
	mustFail(s, "InTx", err, nil)
	mustHaveEffects(s, s.db, s.run, 1)
	mustLook(s, s.j, s.run.Key, journal.Done, string(s.x.record))
}

// mustStand checks that nothing of the run is committed, and that the key is as its Begin has left it.
func (s *scene) mustStand() {
	s.Helper()
	mustHaveEffects(s, s.db, s.run, 0)
	state := journal.Absent
	if s.run.Intent {
		state = journal.Running
	}
	mustLook(s, s.j, s.run.Key, state, "")
}

// mustHaveFailed checks that InTx has failed, and that the handler may try again.
func (s *scene) mustHaveFailed(err error) {
	s.Helper()
	if err == nil || errors.Is(err, journal.ErrAnswered) {
		s.Errorf("InTx: got %v, want its error", err)
	}
	s.mustStand()
}

// mustBeUnknown checks that InTx does not know whether it has committed.
func (s *scene) mustBeUnknown(err error) {
	s.Helper()
	mustFail(s, "InTx", err, journal.ErrAnswered)
	if !s.x.unknown {
		s.Error("it is said to be known what happened")
	}
}

// mustRefuseRetries checks that no retry of an ended transaction runs.
func (s *scene) mustRefuseRetries() {
	s.Helper()
	e, err := s.j.Begin(s.Context(), retried(s.run))
	want := map[bool]journal.State{true: journal.Running, false: journal.Unfinished}[s.run.Intent]
	if err != nil || e.State != want {
		s.Errorf("a retry gets %v, %v, want %v", e.State, err, want)
	}
}

// unfinishedRows inserts rows whose limit is over for longer the lower their number is.
func unfinishedRows(t testing.TB, d dbtest.Database, db *sql.DB, n int) []journal.Run {
	t.Helper()
	runs := make([]journal.Run, n)
	for i := range runs {
		runs[i] = newRun(time.Hour)
		note := sqljournal.JoinNote(runs[i].Note, fmt.Append(nil, "order ", i))
		insertRow(t, d, db, runs[i].Key, runs[i].Token, 1, note, nil, -time.Hour+time.Duration(i)*time.Second)
	}
	return runs
}

// expireLimit lets a run's limit be over.
func expireLimit(t testing.TB, d dbtest.Database, db *sql.DB, run journal.Run) {
	t.Helper()
	mustExec(t, db, "update onceguard_journal set until = "+d.Now()+" - "+d.Interval(time.Minute)+" where onceguard_journal.key = '"+run.Key+"'")
}

// mustSweep hands out n rows.
func mustSweep(t testing.TB, j *sqljournal.Journal, n int, f func(context.Context, sqljournal.Unfinished) error) {
	t.Helper()
	if got, err := j.Sweep(t.Context(), 0, time.Hour, f); got != n || err != nil {
		t.Errorf("Sweep: got %d, %v, want %d", got, err, n)
	}
}

func leave(context.Context, sqljournal.Unfinished) error { return nil }
