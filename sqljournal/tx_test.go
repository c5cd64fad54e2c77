package sqljournal_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// withEffects returns a pool of connections to a database with a table for the effects of handlers.
func withEffects(t testing.TB, d dbtest.Database) *sql.DB {
	t.Helper()
	db := d.Open(t)
	mustExec(t, db, "create table effects (id text not null)")
	return db
}

// take takes effect.
func take(tx *sql.Tx, run journal.Run) error {
	_, err := tx.Exec("insert into effects (id) values ('" + run.Key + "')")
	return err
}

func mustHaveEffects(t testing.TB, db *sql.DB, run journal.Run, want int) {
	t.Helper()
	var got int
	if err := db.QueryRow("select count(*) from effects where id = '" + run.Key + "'").Scan(&got); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("got %d effects, want %d", got, want)
	}
}

// mustStand checks that nothing of a run is committed, and that the key is as the run's Begin has left it.
func mustStand(t testing.TB, j *sqljournal.Journal, db *sql.DB, run journal.Run) {
	t.Helper()
	mustHaveEffects(t, db, run, 0)
	state := journal.Absent
	if run.Intent {
		state = journal.Running
	}
	mustLook(t, j, run.Key, state, "")
}

func TestInTx(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		db := withEffects(t, d)
		for mode, open := range modes {
			t.Run(mode, func(t *testing.T) {
				j := open(d, t)
				run := begin(t, j, newRun(time.Hour))
				x, ctx := protected(j, run, "response")

				broken := errors.New("the handler has failed")
				err := j.InTx(ctx, nil, func(tx *sql.Tx) error { return errors.Join(take(tx, run), broken) })
				mustFail(t, "a handler that fails", err, broken)
				mustStand(t, j, db, run)

				x.record = nil
				err = j.InTx(ctx, nil, func(tx *sql.Tx) error { return take(tx, run) })
				mustFail(t, "a handler without a response", err, journal.ErrNoResponse)
				mustStand(t, j, db, run)

				mustPanic(t, "out of order", func() {
					_ = j.InTx(ctx, nil, func(tx *sql.Tx) error {
						if err := take(tx, run); err != nil {
							return err
						}
						panic("out of order")
					})
				})
				mustStand(t, j, db, run)

				x.record = []byte("response")
				if err := j.InTx(ctx, nil, func(tx *sql.Tx) error { return take(tx, run) }); err != nil {
					t.Errorf("after failures: %v", err)
				}
				mustHaveEffects(t, db, run, 1)
				mustLook(t, j, run.Key, journal.Done, "response")

				err = j.InTx(ctx, nil, func(tx *sql.Tx) error { return take(tx, run) })
				mustFail(t, "once more", err, journal.ErrTwice)
				mustHaveEffects(t, db, run, 1)

				e, err := j.Begin(t.Context(), retried(run))
				mustBe(t, "Begin of a retry", e, err, journal.Done, "response")
			})
		}
	})
}

func TestInTxUnprotected(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		db, run := withEffects(t, d), newRun(time.Hour)
		j := sqljournal.Transactional(d.Open(t), namespace, d.Options()...)
		broken := errors.New("the handler has failed")
		err := j.InTx(t.Context(), nil, func(tx *sql.Tx) error { return errors.Join(take(tx, run), broken) })
		mustFail(t, "a handler that fails", err, broken)
		mustHaveEffects(t, db, run, 0)
		if err := j.InTx(t.Context(), nil, func(tx *sql.Tx) error { return take(tx, run) }); err != nil {
			t.Error(err)
		}
		mustHaveEffects(t, db, run, 1)
		mustLook(t, j, run.Key, journal.Absent, "")
		err = j.InTx(t.Context(), &sql.TxOptions{ReadOnly: true}, func(tx *sql.Tx) error {
			var n int
			return tx.QueryRow("select count(*) from effects").Scan(&n)
		})
		if err != nil {
			t.Errorf("a transaction that only reads: %v", err)
		}
	})
}

// A handler whose row was handed out meanwhile does not take effect, and is told that it has nothing to answer.
func TestLateHandler(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		for _, then := range []string{"held", "done", "free", "free and run again"} {
			t.Run(then, func(t *testing.T) { testLateHandler(t, d, then) })
		}
	})
}

func testLateHandler(t *testing.T, d dbtest.Database, then string) {
	j, db := modes["intent"](d, t), d.Open(t)
	mustExec(t, db, "drop table if exists effects")
	mustExec(t, db, "create table effects (id text not null)")
	run := begin(t, j, newRun(time.Microsecond))
	awaitState(t, j, run.Key, journal.Unfinished)
	n, err := j.Sweep(t.Context(), 0, time.Hour, func(ctx context.Context, u sqljournal.Unfinished) error {
		switch then {
		case "done":
			return u.Done(ctx, db, time.Hour, nil)
		case "free", "free and run again":
			return u.Free(ctx, db)
		}
		return nil
	})
	if n != 1 || err != nil {
		t.Fatalf("Sweep: got %d, %v", n, err)
	}
	again := retried(run)
	again.Limit = time.Hour
	if then == "free and run again" {
		again = begin(t, j, again)
	}

	x, ctx := protected(j, run, "late")
	err = j.InTx(ctx, nil, func(tx *sql.Tx) error { return take(tx, run) })
	want := journal.ErrAnswered
	if then == "free" {
		want = sqljournal.ErrLost
	}
	mustFail(t, "the late handler", err, want)
	mustHaveEffects(t, db, run, 0)
	if x.unknown {
		t.Error("it is said not to be known what happened")
	}
	if then == "free and run again" {
		_, ctx := protected(j, again, "again")
		if err := j.InTx(ctx, nil, func(tx *sql.Tx) error { return take(tx, run) }); err != nil {
			t.Errorf("the second run: %v", err)
		}
		mustLook(t, j, run.Key, journal.Done, "again")
	}
}

// A key whose response has expired is used again: the run's record replaces it.
func TestExpiredRowIsReplaced(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		db := withEffects(t, d)
		for mode, open := range modes {
			for _, expired := range []standing{othersExpired, ownExpired} {
				t.Run(mode+"/"+string(expired), func(t *testing.T) {
					j, run := open(d, t), newRun(time.Hour)
					expired.put(t, d, db, run)
					run = begin(t, j, run)
					_, ctx := protected(j, run, "new")
					if err := j.InTx(ctx, nil, func(tx *sql.Tx) error { return take(tx, run) }); err != nil {
						t.Fatalf("InTx: %v", err)
					}
					mustHaveEffects(t, db, run, 1)
					mustLook(t, j, run.Key, journal.Done, "new")
				})
			}
		}
	})
}

// A row that was stored and has expired since Begin keeps a transaction from being committed. The next run replaces it.
func TestRowExpiresDuringTheRun(t *testing.T) {
	t.Parallel()
	dbtest.EachServer(t, func(t *testing.T, d dbtest.Database) {
		j, db := modes["transactional"](d, t), withEffects(t, d)
		run := begin(t, j, newRun(time.Hour))
		othersExpired.put(t, d, db, run)
		pay := func() error {
			_, ctx := protected(j, run, "new")
			return j.InTx(ctx, nil, func(tx *sql.Tx) error { return take(tx, run) })
		}
		mustFail(t, "InTx", pay(), sqljournal.ErrLost)
		mustStand(t, j, db, run)
		run = begin(t, j, retried(run))
		if err := pay(); err != nil {
			t.Errorf("the next run: %v", err)
		}
		mustHaveEffects(t, db, run, 1)
	})
}

// A run of another journal is refused before anything happens.
func TestOtherJournal(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		db := withEffects(t, d)
		for mode, open := range modes {
			t.Run(mode, func(t *testing.T) {
				j := open(d, t)
				run := begin(t, j, newRun(time.Hour))
				_, ctx := protected(sqljournal.Intent(db, namespace, d.Options()...), run, "response")
				mustFail(t, "InTx", j.InTx(ctx, nil, func(tx *sql.Tx) error { return take(tx, run) }), sqljournal.ErrOtherJournal)
				mustFail(t, "Around", j.Around(ctx, func(func(sqljournal.Execer) error) error {
					t.Error("Around has called its function")
					return nil
				}), sqljournal.ErrOtherJournal)
				mustFail(t, "Note", j.Note(ctx, nil), sqljournal.ErrOtherJournal)
				mustStand(t, j, db, run)
			})
		}
	})
}
