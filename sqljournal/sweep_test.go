package sqljournal_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

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

func TestSweepHandsOutTheOldestFirst(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		j, db := modes["intent"](d, t), d.Open(t)
		runs := unfinishedRows(t, d, db, 3)
		young, living := newRun(time.Hour), begin(t, j, newRun(time.Hour))
		insertRow(t, d, db, young.Key, young.Token, 1, sqljournal.JoinNote(young.Note, nil), nil, -time.Minute)
		othersDone.put(t, d, db, newRun(time.Hour))

		var notes []string
		failed := errors.New("the provider does not answer")
		n, err := j.Sweep(t.Context(), 10*time.Minute, time.Hour, func(ctx context.Context, u sqljournal.Unfinished) error {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("the context has no end")
			}
			if u.Attempts != 1 || time.Since(u.Began).Abs() > time.Minute {
				t.Errorf("handed out for the %dth time, began %v ago", u.Attempts, time.Since(u.Began))
			}
			notes = append(notes, string(u.Note))
			switch u.Key {
			case runs[0].Key:
				return u.Done(ctx, db, time.Hour, nil)
			case runs[1].Key:
				return u.Free(ctx, db)
			}
			return failed
		})
		mustFail(t, "Sweep", err, failed)
		if want := []string{"order 0", "order 1", "order 2"}; n != 3 || fmt.Sprint(notes) != fmt.Sprint(want) {
			t.Errorf("got %d, %q, want %q", n, notes, want)
		}
		mustLook(t, j, runs[0].Key, journal.Done, "")
		mustLook(t, j, runs[1].Key, journal.Absent, "")
		mustLook(t, j, runs[2].Key, journal.Unfinished, "")
		mustLook(t, j, young.Key, journal.Unfinished, "")
		mustLook(t, j, living.Key, journal.Running, "")
	})
}

// A row that nobody has ended is handed out again when its lease is over, without another grace, but not twice in one
// sweep; and then the one who had it first can no longer end it.
func TestSweepAgain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		j, db := modes["intent"](d, t), d.Open(t)
		const grace = 10 * time.Minute
		run := unfinishedRows(t, d, db, 1)[0]
		var first sqljournal.Unfinished
		n, err := j.Sweep(t.Context(), grace, time.Microsecond, func(_ context.Context, u sqljournal.Unfinished) error {
			first = u
			return nil
		})
		if n != 1 || err != nil {
			t.Errorf("Sweep: got %d, %v, want 1", n, err)
		}
		eventually(t, "the end of the lease", func() bool {
			i, err := j.Inspect(t.Context(), run.Key)
			return err == nil && i.State == journal.Unfinished && i.Left < 0
		})
		n, err = j.Sweep(t.Context(), grace, time.Hour, func(ctx context.Context, u sqljournal.Unfinished) error {
			if u.Attempts != 2 || string(u.Note) != "order 0" {
				t.Errorf("got attempt %d, note %q", u.Attempts, u.Note)
			}
			mustFail(t, "Done of the first", first.Done(ctx, db, time.Hour, nil), sqljournal.ErrLost)
			mustFail(t, "Free of the first", first.Free(ctx, db), sqljournal.ErrLost)
			if err := u.Done(ctx, db, time.Hour, nil); err != nil {
				return err
			}
			mustFail(t, "Done once more", u.Done(ctx, db, time.Hour, nil), sqljournal.ErrLost)
			return nil
		})
		if n != 1 || err != nil {
			t.Errorf("Sweep again: got %d, %v, want 1", n, err)
		}
		if _, err := j.Sweep(t.Context(), 0, 0, nil); err == nil {
			t.Error("a lease of 0 is taken")
		}
	})
}

// fault: the leases of a sweep end before the sweep does. Expected: it hands out each row once all the same.
func TestSweepHandsOutEachRowOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		j, db := modes["intent"](d, t), d.Open(t)
		unfinishedRows(t, d, db, 3)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		handed := map[string]bool{}
		n, err := j.Sweep(ctx, 0, time.Microsecond, func(_ context.Context, u sqljournal.Unfinished) error {
			if handed[u.Key] {
				t.Error("a row is handed out again")
				cancel() // or it would never end
			}
			handed[u.Key] = true
			eventually(t, "the end of the lease", func() bool {
				i, err := j.Inspect(t.Context(), u.Key)
				return err == nil && i.Left < 0
			})
			return nil
		})
		if n != 3 || err != nil {
			t.Errorf("Sweep: got %d, %v, want 3", n, err)
		}
	})
}

// Sixteen sweepers hand out each of a thousand rows once.
func TestManySweepers(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		const rows, sweepers = 1000, 16
		j, db := modes["intent"](d, t), d.Open(t)
		unfinishedRows(t, d, db, rows)
		var mu sync.Mutex
		handed := map[string]int{}
		var total int
		var running sync.WaitGroup
		for range sweepers {
			running.Go(func() {
				n, err := j.Sweep(t.Context(), 0, time.Hour, func(_ context.Context, u sqljournal.Unfinished) error {
					mu.Lock()
					defer mu.Unlock()
					handed[u.Key]++
					return nil
				})
				if err != nil {
					t.Errorf("Sweep: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				total += n
			})
		}
		running.Wait()
		if total != rows || len(handed) != rows {
			t.Errorf("handed out %d rows, %d times; want %d, each once", len(handed), total, rows)
		}
	})
}

// A row whose run has its transaction open is left out, and that transaction commits.
func TestSweepSkipsAnOpenTransaction(t *testing.T) {
	t.Parallel()
	dbtest.EachServer(t, testSweepSkipsAnOpenTransaction)
}

func testSweepSkipsAnOpenTransaction(t *testing.T, d dbtest.Database) {
	j, db := modes["intent"](d, t), withEffects(t, d)
	run := begin(t, j, newRun(time.Microsecond))
	awaitState(t, j, run.Key, journal.Unfinished)
	other := unfinishedRows(t, d, db, 1)[0]
	handed := ""
	sweep := func() {
		soon, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		n, err := j.Sweep(soon, 0, time.Hour, func(_ context.Context, u sqljournal.Unfinished) error {
			handed += u.Key
			return nil
		})
		if n != 1 || err != nil || handed != other.Key {
			t.Errorf("Sweep: got %d, %v, %q, want only %q", n, err, handed, other.Key)
		}
	}
	_, ctx := protected(j, run, "response")
	err := j.Around(ctx, func(complete func(sqljournal.Execer) error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // after the commit it does nothing
		if err := errors.Join(take(tx, run), complete(tx)); err != nil {
			return err
		}
		sweep()
		return tx.Commit()
	})
	if err != nil {
		t.Errorf("Around: %v", err)
	}
	mustHaveEffects(t, db, run, 1)
	mustLook(t, j, run.Key, journal.Done, "response")
}

func TestNote(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		j, db := modes["intent"](d, t), d.Open(t)
		run := begin(t, j, newRun(time.Hour))
		_, ctx := protected(j, run, "response")
		for _, note := range []string{"draft", "order 7", "order 8", "order 8"} {
			if err := j.Note(ctx, []byte(note)); err != nil {
				t.Fatalf("Note: %v", err)
			}
		}
		if err := j.Note(ctx, make([]byte, sqljournal.MaxNote+1)); err == nil {
			t.Error("a note that is too long is taken")
		}
		mustLook(t, j, run.Key, journal.Running, "") // with the middleware's own note
		expireLimit(t, d, db, run)
		_, err := j.Sweep(t.Context(), 0, time.Hour, func(_ context.Context, u sqljournal.Unfinished) error {
			if string(u.Note) != "order 8" {
				t.Errorf("got the note %q", u.Note)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		mustFail(t, "after its row was handed out", j.Note(ctx, []byte("late")), sqljournal.ErrLost)
		_, err = j.End(t.Context(), run, []byte("late"), time.Hour)
		mustFail(t, "End after that", err, journal.ErrHandedOut)

		other := modes["transactional"](d, t)
		_, ctx = protected(j, begin(t, other, newRun(time.Hour)), "response")
		if err := other.Note(ctx, []byte("order 9")); err == nil {
			t.Error("a transactional run takes a note")
		}
		if err := j.Note(t.Context(), []byte("order 10")); err != nil {
			t.Errorf("outside of a run: %v", err)
		}
	})
}

// fault: the database does not answer Note. The error says so, and the run goes on.
func TestNoteIsLost(t *testing.T) {
	t.Parallel()
	dbtest.EachServer(t, func(t *testing.T, d dbtest.Database) {
		f := newFaulty(t, d, "intent")
		lost := f.proxy.CutBefore(dbtest.Statement("update onceguard_journal set note"))
		if err := f.j.Note(f.ctx, []byte("order 7")); err == nil || errors.Is(err, journal.ErrAnswered) {
			t.Errorf("Note: got error %v, want the connection's", err)
		}
		lost.Wait(t)
		if err := f.j.Note(f.ctx, []byte("order 7")); err != nil {
			t.Errorf("Note again: %v", err)
		}
		f.mustBeCommitted(t, f.pay())
	})
}

// expireLimit lets a run's limit be over.
func expireLimit(t testing.TB, d dbtest.Database, db *sql.DB, run journal.Run) {
	t.Helper()
	mustExec(t, db, "update onceguard_journal set until = "+d.Now()+" - "+d.Interval(time.Minute)+" where onceguard_journal.key = '"+run.Key+"'")
}

func TestExpire(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		j, db := modes["transactional"](d, t), d.Open(t)
		expired := make([]string, 2500)
		for i := range expired {
			past := fmt.Sprintf("%s - %s", d.Now(), d.Interval(time.Duration(i+1)*time.Second))
			expired[i] = fmt.Sprintf("('%s:{0000}old%d', '%s', 2, null, null, %s, null, %s, 0, null, null)", namespace, i, uuid.NewString(), past, past)
		}
		mustExec(t, db, "insert into onceguard_journal values "+strings.Join(expired, ", "))
		living := []standing{ownBegun, othersUnfished, othersDone}
		runs := make([]journal.Run, len(living))
		for i, s := range living {
			runs[i] = newRun(time.Hour)
			s.put(t, d, db, runs[i])
		}
		if n, err := j.Expire(t.Context()); n != 2500 || err != nil {
			t.Errorf("Expire: got %d, %v, want 2500", n, err)
		}
		var left int
		if err := db.QueryRow("select count(*) from onceguard_journal").Scan(&left); err != nil || left != len(living) {
			t.Errorf("%d rows are left, %v, want %d", left, err, len(living))
		}
		if n, err := j.Expire(t.Context()); n != 0 || err != nil {
			t.Errorf("Expire again: got %d, %v, want 0", n, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := j.Expire(ctx)
		mustFail(t, "without time", err, context.Canceled)
	})
}
