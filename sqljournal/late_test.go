package sqljournal_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// handedOut is a row of an intent journal that a sweep has.
type handedOut struct {
	j   *sqljournal.Journal
	db  *sql.DB
	run journal.Run
	u   sqljournal.Unfinished
}

func handOut(t *testing.T, d dbtest.Database) handedOut {
	t.Helper()
	h := handedOut{j: modes["intent"](d, t), db: d.Open(t)}
	h.run = unfinishedRows(t, d, h.db, 1)[0]
	h.run.Intent = true
	n, err := h.j.Sweep(t.Context(), 0, time.Hour, func(_ context.Context, u sqljournal.Unfinished) error {
		h.u = u
		return nil
	})
	if n != 1 || err != nil {
		t.Fatalf("Sweep: got %d, %v, want 1", n, err)
	}
	return h
}

// end calls End. The outcome is a record, or none to free the row.
func (h *handedOut) end(t *testing.T, record string) (journal.Entry, error) {
	t.Helper()
	if record == "" {
		return h.j.End(t.Context(), h.run, nil, 0)
	}
	return h.j.End(t.Context(), h.run, []byte(record), time.Hour)
}

// A run can neither complete nor free a row that is handed out. If the row is then done without a record, it takes the
// run's, once.
func TestLateEndFillsTheRow(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		h := handOut(t, d)
		for _, record := range []string{"late", ""} {
			_, err := h.end(t, record)
			mustFail(t, "End while it is handed out", err, journal.ErrHandedOut)
		}
		if err := h.u.Done(t.Context(), h.db, time.Hour, nil); err != nil {
			t.Fatal(err)
		}
		if e, err := h.j.Look(t.Context(), h.run.Key); err != nil || e.Token != h.run.Token || string(e.Note) != "fingerprint" {
			t.Errorf("done: %+v, %v, want the run's token and its note", e, err)
		}
		e, err := h.end(t, "")
		mustBe(t, "End that would free it", e, err, journal.Done, "")

		stranger := h.run
		stranger.Token = newRun(time.Hour).Token
		e, err = h.j.End(t.Context(), stranger, []byte("stranger's"), time.Hour)
		mustBe(t, "End of another run", e, err, journal.Done, "")

		e, err = h.end(t, "late")
		mustBe(t, "End", e, err, journal.Done, "late")
		if e.Token != h.run.Token {
			t.Errorf("token %s, want the run's", e.Token)
		}
		e, err = h.end(t, "later")
		mustBe(t, "another End", e, err, journal.Done, "late")
		mustLook(t, h.j, h.run.Key, journal.Done, "late")
	})
}

func TestLateEndAfterFree(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		h := handOut(t, d)
		if err := h.u.Free(t.Context(), h.db); err != nil {
			t.Fatal(err)
		}
		e, err := h.end(t, "late")
		mustBe(t, "End", e, err, journal.Absent, "")
		mustLook(t, h.j, h.run.Key, journal.Absent, "")
	})
}

// The function of the sweep has the response. The run's own does not replace it.
func TestDoneWithARecord(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		h := handOut(t, d)
		if err := h.u.Done(t.Context(), h.db, time.Hour, []byte("found out")); err != nil {
			t.Fatal(err)
		}
		e, err := h.end(t, "late")
		if err != nil || string(e.Record) != "found out" || string(e.Note) != "fingerprint" {
			t.Errorf("got %q with the note %q, %v", e.Record, e.Note, err)
		}
	})
}

// A record that is kept for no time would let the next retry run, although the run took effect.
func TestDoneKeepsForNoTime(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		h := handOut(t, d)
		for _, keep := range []time.Duration{0, -time.Hour} {
			if err := h.u.Done(t.Context(), h.db, keep, nil); err == nil {
				t.Errorf("Done for %v has not failed", keep)
			}
			mustLook(t, h.j, h.run.Key, journal.Unfinished, "")
		}
	})
}

// What an operator has found out counts also while a sweep has the row. Its function then fails.
func TestResolvedWhileHandedOut(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		for record, state := range map[string]journal.State{"found out": journal.Done, "": journal.Absent} {
			h := handOut(t, d)
			h.run.Resolved = true
			e, err := h.end(t, record)
			mustBe(t, "End", e, err, state, record)
			mustLook(t, h.j, h.run.Key, state, record)
			mustFail(t, "Done", h.u.Done(t.Context(), h.db, time.Hour, nil), sqljournal.ErrLost)
			mustFail(t, "Free", h.u.Free(t.Context(), h.db), sqljournal.ErrLost)
			mustLook(t, h.j, h.run.Key, state, record)
		}
	})
}

// suspendedBegin is a journal whose process is suspended during its first Begin: its clock stands still, while the limit of
// the row passes and a sweep takes it. The reply is lost.
type suspendedBegin struct {
	*sqljournal.Journal
	suspended func(run journal.Run)
	once      sync.Once
}

func (s *suspendedBegin) Begin(ctx context.Context, run journal.Run) (e journal.Entry, err error) {
	s.once.Do(func() {
		_, _ = s.Journal.Begin(ctx, run)
		s.suspended(run)
		err = errors.New("the connection is broken")
	})
	if err != nil {
		return e, err
	}
	return s.Journal.Begin(ctx, run)
}

// A run whose row is handed out before it has begun does not begin: the sweep might free the row while it runs.
func TestHandedOutBeforeItBegins(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		db := d.Open(t)
		j := sqljournal.Intent(db, namespace, d.Options()...)
		locker := lock.None(namespace)
		defer func() { _ = locker.Close(context.Background()) }()
		guard := once.New(locker, once.WithJournal(&suspendedBegin{Journal: j, suspended: func(run journal.Run) {
			expireLimit(t, d, db, run)
			n, err := j.Sweep(t.Context(), 0, time.Hour, func(context.Context, sqljournal.Unfinished) error { return nil })
			if n != 1 || err != nil {
				t.Errorf("Sweep: %d, %v", n, err)
			}
		}}))
		_, _, err := once.Do(t.Context(), guard, once.Key{Operation: "pay", Scope: once.Anyone, ID: "1"},
			func(context.Context) (string, error) { t.Error("it ran"); return "", nil })
		mustBeRefused(t, err, once.ErrOutcomeUnknown, true)
	})
}
