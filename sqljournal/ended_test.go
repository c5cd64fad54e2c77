package sqljournal_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// fault: MySQL: a deadlock that the function of InTx ignores outside of a run, before Done or Free or without them. Expected:
// InTx fails, nothing is committed, and the row is handed out again.
func TestDeadlockInATransactionOutsideOfARun(t *testing.T) {
	t.Parallel()
	for last, end := range map[string]func(context.Context, sqljournal.Unfinished, *sql.Tx) error{
		"Done": func(ctx context.Context, u sqljournal.Unfinished, tx *sql.Tx) error {
			return u.Done(ctx, tx, time.Hour, []byte("response"))
		},
		"Free":         func(ctx context.Context, u sqljournal.Unfinished, tx *sql.Tx) error { return u.Free(ctx, tx) },
		"Free ignored": func(ctx context.Context, u sqljournal.Unfinished, tx *sql.Tx) error { _ = u.Free(ctx, tx); return nil },
		"neither":      func(context.Context, sqljournal.Unfinished, *sql.Tx) error { return nil },
	} {
		t.Run(last, func(t *testing.T) {
			t.Parallel()
			d := dbtest.MySQL(t)
			j, db := modes["intent"](d, t), withEffects(t, d)
			withLocks(t, db)
			run := unfinishedRows(t, d, db, 1)[0]
			sweep := func(isEnded bool) error {
				_, err := j.Sweep(t.Context(), 0, time.Microsecond, func(ctx context.Context, u sqljournal.Unfinished) error {
					return j.InTx(t.Context(), nil, func(tx *sql.Tx) error {
						if err := take(tx, run); err != nil {
							return err
						}
						if isEnded {
							mustDeadlock(t, db, tx)
						}
						return end(t.Context(), u, tx)
					})
				})
				return err
			}
			if err := sweep(true); err == nil || !strings.Contains(err.Error(), "has ended") {
				t.Errorf("got %v, want that the transaction has ended", err)
			}
			mustHaveEffects(t, db, run, 0)
			mustLook(t, j, run.Key, journal.Unfinished, "")
			if err := sweep(false); err != nil {
				t.Error(err)
			}
			mustHaveEffects(t, db, run, 1)
		})
	}
}

// beginBeside begins a transaction of a handler, which has a connection of its own with that setting of autocommit.
func beginBeside(t *testing.T, db *sql.DB, autocommit string) *sql.Tx {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() })
		_, err = conn.ExecContext(t.Context(), "set autocommit = "+autocommit)
	}
	if err != nil {
		t.Fatal(err)
	}
	tx, err := conn.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// Without autocommit, complete cannot tell the handler's transaction from one that has followed it.
//
// fault: MySQL: the handler's pool has autocommit = 0, with a deadlock that it ignores and without. Expected: Around fails, and
// commits nothing.
func TestAroundWithoutAutocommit(t *testing.T) {
	t.Parallel()
	for mode, open := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := dbtest.MySQL(t)
			j, db := open(d, t), withEffects(t, d)
			withLocks(t, db)
			for _, isEnded := range []bool{true, false} {
				run := begin(t, j, newRun(time.Hour))
				_, ctx := protected(j, run, "response")
				err := j.Around(ctx, func(complete func(sqljournal.Execer) error) error {
					tx := beginBeside(t, db, "0")
					if isEnded {
						mustDeadlock(t, db, tx)
					}
					err := errors.Join(take(tx, run), complete(tx))
					return errors.Join(err, tx.Commit()) // though complete has failed
				})
				if err == nil || !strings.Contains(err.Error(), "autocommit") {
					t.Errorf("ended %t: got %v, want that autocommit is off", isEnded, err)
				}
				mustStand(t, j, db, run)
			}
		})
	}
}

// What complete has found once stays so, although a later attempt of the handler is a transaction as it should be.
//
// fault: MySQL: a deadlock that the first attempt ignores, and a second attempt. Expected: the effect of the second is not
// committed, the outcome is unknown, and no retry runs.
func TestAroundAgainAfterAnEndedTransaction(t *testing.T) {
	t.Parallel()
	for mode, open := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := dbtest.MySQL(t)
			j, db := open(d, t), withEffects(t, d)
			withLocks(t, db)
			run := begin(t, j, newRun(time.Hour))
			x, ctx := protected(j, run, "response")
			err := j.Around(ctx, func(complete func(sqljournal.Execer) error) error {
				var err error
				for attempt := range 2 {
					tx := beginBeside(t, db, "1")
					if attempt == 0 {
						mustDeadlock(t, db, tx)
					}
					err = errors.Join(take(tx, run), complete(tx), tx.Commit())
				}
				return err
			})
			mustFail(t, "Around", err, journal.ErrAnswered)
			if !x.unknown {
				t.Error("it is said to be known what happened")
			}
			mustHaveEffects(t, db, run, 1) // of the first, which the server has committed after the deadlock
			e, err := j.Begin(t.Context(), retried(run))
			if want := map[bool]journal.State{true: running, false: unfinished}[run.Intent]; err != nil || e.State != want {
				t.Errorf("a retry gets %v, %v, want %v", e.State, err, want)
			}
		})
	}
}

// fault: the handler ends the transaction of InTx by itself. Expected: the outcome is unknown, and no retry runs.
func TestHandlerEndsItsTransaction(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		withEffects(t, d)
		for mode, open := range modes {
			for end, f := range map[string]func(*sql.Tx) error{"Commit": (*sql.Tx).Commit, "Rollback": (*sql.Tx).Rollback} {
				t.Run(mode+", "+end, func(t *testing.T) {
					j := open(d, t)
					run := begin(t, j, newRun(time.Hour))
					x, ctx := protected(j, run, "response")
					err := j.InTx(ctx, nil, func(tx *sql.Tx) error { return errors.Join(take(tx, run), f(tx)) })
					mustFail(t, "InTx", err, journal.ErrAnswered)
					if !x.unknown {
						t.Error("it is said to be known what happened")
					}
					awaitState(t, j, run.Key, map[bool]journal.State{true: running, false: unfinished}[run.Intent])
				})
			}
		}
	})
}
