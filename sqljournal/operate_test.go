package sqljournal_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

func TestInspectAndScan(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		j, db := modes["intent"](d, t), d.Open(t)
		var wantScan []string
		for _, test := range []struct {
			state   int
			record  []byte
			left    time.Duration
			want    sqljournal.Info // Token: its prefix
			scanned bool
		}{
			{1, nil, -time.Hour, sqljournal.Info{State: unfinished, Note: []byte("order 7")}, true},
			{1, nil, time.Hour, sqljournal.Info{State: running, Note: []byte("order 7")}, true},
			{2, nil, time.Hour, sqljournal.Info{State: done, Token: "unanswered-"}, true},
			{2, []byte("stored"), time.Hour, sqljournal.Info{State: done, Token: "done-", Size: 6}, false},
			{2, []byte("stored"), -time.Minute, sqljournal.Info{State: absent}, false},
			{2, nil, -time.Minute, sqljournal.Info{State: absent}, false},
		} {
			run := newRun(time.Hour)
			insertRow(t, d, db, run.Key, run.Token, test.state, sqljournal.JoinNote(run.Note, []byte("order 7")), test.record, test.left)
			if test.want.Key = run.Key; test.want.State != absent {
				test.want.Run, test.want.Token = run.Token, test.want.Token+run.Token
			}
			got, err := j.Inspect(t.Context(), run.Key)
			if got.State != absent && ((got.Left-test.left).Abs() > time.Minute || time.Since(got.Began).Abs() > time.Minute) {
				t.Errorf("%+v: left %v, want %v; began %v ago", test.want, got.Left, test.left, time.Since(got.Began))
			}
			if err != nil || got.Key != run.Key || got.State != test.want.State || got.Token != test.want.Token || got.Run != test.want.Run ||
				got.Attempts != 0 || got.Size != test.want.Size || string(got.Note) != string(test.want.Note) {
				t.Errorf("got %+v, %v, want %+v", got, err, test.want)
			}
			if test.scanned {
				wantScan = append(wantScan, run.Key)
			}
		}
		other := newRun(time.Hour)
		insertRow(t, d, db, "other"+other.Key, other.Token, 1, sqljournal.JoinNote(nil, nil), nil, -time.Hour)
		scanned, err := j.Scan(t.Context())
		var got []string
		for _, i := range scanned {
			got = append(got, i.Key)
		}
		if err != nil || !slices.Equal(got, wantScan) {
			t.Errorf("scan: got %q, %v, want %q", got, err, wantScan)
		}
		missing, err := j.Inspect(t.Context(), newRun(time.Hour).Key)
		if err != nil || missing.State != absent || missing.Token != "" {
			t.Errorf("without a row: %+v, %v", missing, err)
		}
	})
}

// A sweep that has a row shows: nothing runs, and there is time left. The row tells how old its run is.
func TestInspectOfASweptRow(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		h := handOut(t, d)
		mustExec(t, h.db, "update onceguard_journal set began_at = "+d.Now()+" - "+d.Interval(time.Hour))
		got, err := h.j.Inspect(t.Context(), h.run.Key)
		if err != nil || got.State != unfinished || got.Left <= 0 || got.Attempts != 1 || got.Token != h.run.Token {
			t.Errorf("%+v, %v", got, err)
		}
		mustFail(t, "Forget", h.j.Forget(t.Context(), h.run.Key, got.Token, false), sqljournal.ErrRunning)
		e, err := h.j.Look(t.Context(), h.run.Key)
		mustBe(t, "Look", e, err, unfinished, "")
		if e.Left <= 0 || e.Left > time.Hour || e.Age < time.Hour || e.Age > 2*time.Hour {
			t.Errorf("Look: handed out for %v, %v old, want up to an hour, and an hour", e.Left, e.Age)
		}
	})
}

func TestForget(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		j, db := modes["intent"](d, t), d.Open(t)
		for _, s := range []standing{othersRunning, othersUnfished, othersDone, othersTombstone} {
			run := newRun(time.Hour)
			s.put(t, d, db, run)
			i, err := j.Inspect(t.Context(), run.Key)
			if err != nil {
				t.Fatal(err)
			}
			for _, wrong := range []string{"", "value-" + i.Token, "done-" + i.Token, "unanswered-" + i.Token, run.Token} {
				mustFail(t, s.name+" by "+wrong, j.Forget(t.Context(), run.Key, wrong, true), sqljournal.ErrLost)
			}
			if s == othersRunning {
				mustFail(t, s.name, j.Forget(t.Context(), run.Key, i.Token, false), sqljournal.ErrRunning)
				mustLook(t, j, run.Key, running, "")
			}
			mustFail(t, s.name, j.Forget(t.Context(), run.Key, i.Token, s == othersRunning), nil)
			mustLook(t, j, run.Key, absent, "")
			mustFail(t, s.name+" again", j.Forget(t.Context(), run.Key, i.Token, false), nil)
		}

		// Who has seen a row without an outcome does not remove the outcome that its run has stored since.
		run := begin(t, j, newRun(time.Hour))
		_, err := j.End(t.Context(), run, []byte("late"), time.Hour)
		mustFail(t, "End", err, nil)
		mustFail(t, "Forget", j.Forget(t.Context(), run.Key, run.Token, true), sqljournal.ErrLost)
		mustLook(t, j, run.Key, done, "late")
	})
}

// override is what an operator does to a row, or to a key without one.
type override struct {
	statement string // what it sends
	before    standing
	do        func(ctx context.Context, operator *sqljournal.Journal, run journal.Run) error
}

func forgets(prefix string, evenIfLive bool) func(context.Context, *sqljournal.Journal, journal.Run) error {
	return func(ctx context.Context, operator *sqljournal.Journal, run journal.Run) error {
		return operator.Forget(ctx, run.Key, prefix+run.Token, evenIfLive)
	}
}

func resolves(isIntent bool, record []byte) func(context.Context, *sqljournal.Journal, journal.Run) error {
	return func(ctx context.Context, operator *sqljournal.Journal, run journal.Run) error {
		run.Intent, run.Resolved = isIntent, true
		_, err := operator.End(ctx, run, record, time.Hour)
		return err
	}
}

var overrides = map[string]override{
	"forget":                   {"delete from onceguard_journal", ownUnfinished, forgets("", false)},
	"forget even if live":      {"delete from onceguard_journal", ownBegun, forgets("", true)},
	"forget an outcome":        {"delete from onceguard_journal", ownDone, forgets("done-", false)},
	"nothing happened":         {"delete from onceguard_journal", ownUnfinished, resolves(true, nil)},
	"responded":                {"update onceguard_journal", ownUnfinished, resolves(true, []byte("said"))},
	"responded, after a sweep": {"update onceguard_journal", ownTombstone, resolves(true, []byte("said"))},
	"responded, without a row": {"insert into onceguard_journal", nothing, resolves(false, []byte("said"))},
}

// fault: an override loses its connection, and its statement reaches the database after the operator was told that it has
// failed. Expected: it changes nothing once its time is over. In time it does.
func TestOverrideIsLate(t *testing.T) {
	t.Parallel()
	dbtest.EachServer(t, func(t *testing.T, d dbtest.Database) {
		for name, o := range overrides {
			s, run := newScene(t, d, "intent"), newRun(time.Hour)
			o.before.put(t, d, s.db, run)
			before, err := s.j.Look(t.Context(), run.Key)
			mustFail(t, "Look", err, nil)
			sqljournal.SetOverrideTime(s.j, 0) // it is over at once
			late, executed := s.proxy.Delay(dbtest.Statement(o.statement)), s.proxy.DropReply(dbtest.Statement(o.statement))
			err = o.do(t.Context(), s.j, run)
			if err == nil || errors.Is(err, sqljournal.ErrLost) || errors.Is(err, sqljournal.ErrRunning) {
				t.Errorf("%s: got %v, want the connection's error", name, err)
			}
			late.Lift()
			executed.Wait(t)
			mustLook(t, s.j, run.Key, before.State, string(before.Record))
			sqljournal.SetOverrideTime(s.j, time.Hour)
			mustFail(t, name+", in time", o.do(t.Context(), s.j, run), nil)
			after, err := s.j.Look(t.Context(), run.Key)
			if err != nil || after.State == before.State && string(after.Record) == string(before.Record) {
				t.Errorf("%s, in time: %v %q stands, %v", name, after.State, after.Record, err)
			}
		}
	})
}

// fault: a Forget of a row whose time is not over could lie in the buffer of a broken connection until it is. Expected: it is
// refused before a statement is sent that could change the row.
func TestRefusedForgetSendsNothing(t *testing.T) {
	t.Parallel()
	dbtest.EachServer(t, func(t *testing.T, d dbtest.Database) {
		s := newScene(t, d, "intent")
		s.proxy.CutBefore(dbtest.Statement("delete"))
		mustFail(t, "Forget", s.j.Forget(t.Context(), s.run.Key, s.run.Token, false), sqljournal.ErrRunning)
		mustFail(t, "of another run", s.j.Forget(t.Context(), s.run.Key, newRun(0).Token, true), sqljournal.ErrLost)
	})
}

// fault: the statement of an override waits in PostgreSQL for a transaction that has the row, its connection breaks, and the
// transaction ends after the time of the override. Expected: it changes nothing.
func TestOverrideIsLateBehindATransaction(t *testing.T) {
	t.Parallel()
	for name, o := range overrides {
		if o.before == nothing {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := dbtest.PostgreSQL(t)
			s, run := newScene(t, d, "intent"), newRun(time.Hour)
			sqljournal.SetOverrideTime(s.j, time.Second)
			o.before.put(t, d, s.db, run)
			watching := sqljournal.Intent(s.db, namespace)
			before, err := watching.Inspect(t.Context(), run.Key)
			mustFail(t, "Inspect", err, nil)
			tx, err := s.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			const lock = "select from onceguard_journal where key = $1 for update"
			mustExec(t, tx, lock, run.Key)
			failed := make(chan error, 1)
			go func() { failed <- o.do(t.Context(), s.j, run) }()
			eventually(t, "the override waits", func() bool { return d.Waiting(t, s.db) > 0 })
			s.proxy.Down() // a request to cancel the statement does not arrive either
			if err := <-failed; err == nil {
				t.Error("the override has not failed")
			}
			mustExec(t, s.db, "select pg_sleep(1.1)") // its time is over
			mustFail(t, "Rollback", tx.Rollback(), nil)
			mustExec(t, s.db, lock, run.Key) // behind the override
			after, err := watching.Inspect(t.Context(), run.Key)
			if err != nil || after.State != before.State || after.Size != before.Size {
				t.Errorf("%v of %d bytes stands, %v, want %v, %v", after.State, after.Size, err, before.State, before.Size)
			}
		})
	}
}
