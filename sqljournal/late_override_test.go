package sqljournal_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

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
		db, proxy := d.Open(t), dbtest.NewProxy(t, d.Server())
		for name, o := range overrides {
			operator, run := modes["intent"](d, t, dbtest.Through(proxy)), newRun(time.Hour)
			o.before.put(t, d, db, run)
			before, err := operator.Look(t.Context(), run.Key)
			if err != nil {
				t.Fatal(err)
			}
			sqljournal.SetOverrideTime(operator, 0) // it is over at once
			late, executed := proxy.Delay(dbtest.Statement(o.statement)), proxy.DropReply(dbtest.Statement(o.statement))
			err = o.do(t.Context(), operator, run)
			if err == nil || errors.Is(err, sqljournal.ErrLost) || errors.Is(err, sqljournal.ErrRunning) {
				t.Errorf("%s: got %v, want the connection's error", name, err)
			}
			late.Lift()
			executed.Wait(t)
			mustLook(t, operator, run.Key, before.State, string(before.Record))
			sqljournal.SetOverrideTime(operator, time.Hour)
			if err := o.do(t.Context(), operator, run); err != nil {
				t.Errorf("%s, in time: %v", name, err)
			}
			after, err := operator.Look(t.Context(), run.Key)
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
		db, proxy := d.Open(t), dbtest.NewProxy(t, d.Server())
		operator, run := modes["intent"](d, t, dbtest.Through(proxy)), newRun(time.Hour)
		ownBegun.put(t, d, db, run)
		proxy.CutBefore(dbtest.Statement("delete"))
		mustFail(t, "Forget", operator.Forget(t.Context(), run.Key, run.Token, false), sqljournal.ErrRunning)
		mustFail(t, "of another run", operator.Forget(t.Context(), run.Key, newRun(0).Token, true), sqljournal.ErrLost)
	})
}

// fault: the statement of an override waits in PostgreSQL for a transaction that has the row, its connection breaks, and the
// transaction ends after the time of the override. Expected: it changes nothing.
func TestOverrideIsLateBehindATransaction(t *testing.T) {
	t.Parallel()
	d := dbtest.PostgreSQL(t)
	db := d.Open(t)
	for name, o := range overrides {
		if o.before == nothing {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := dbtest.NewProxy(t, d.Server())
			operator, run := modes["intent"](d, t, dbtest.Through(proxy)), newRun(time.Hour)
			const overrideTime = time.Second
			sqljournal.SetOverrideTime(operator, overrideTime)
			o.before.put(t, d, db, run)
			watching := sqljournal.Intent(db, namespace)
			before, err := watching.Inspect(t.Context(), run.Key)
			if err != nil {
				t.Fatal(err)
			}
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			const lock = "select from onceguard_journal where key = $1 for update"
			if _, err := tx.ExecContext(t.Context(), lock, run.Key); err != nil {
				t.Fatal(err)
			}
			failed := make(chan error, 1)
			go func() { failed <- o.do(t.Context(), operator, run) }()
			waits := func() (n int) {
				const waiting = "select count(*) from pg_locks l join pg_locks h using (transactionid) where not l.granted and h.granted and h.pid = pg_backend_pid()"
				if err := tx.QueryRowContext(t.Context(), waiting).Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			eventually(t, "the override waits", func() bool { return waits() > 0 })
			proxy.Down() // a request to cancel the statement does not arrive either
			if err := <-failed; err == nil {
				t.Error("the override has not failed")
			}
			var over string
			if err := tx.QueryRowContext(t.Context(), "select (clock_timestamp() + $1::bigint * interval '1 microsecond')::text", overrideTime.Microseconds()).Scan(&over); err != nil {
				t.Fatal(err)
			}
			eventually(t, "its time is over", func() (is bool) {
				if err := tx.QueryRowContext(t.Context(), "select clock_timestamp() > $1::text::timestamptz", over).Scan(&is); err != nil {
					t.Fatal(err)
				}
				return is
			})
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			mustExec(t, db, lock, run.Key) // behind the override
			after, err := watching.Inspect(t.Context(), run.Key)
			if err != nil || after.State != before.State || after.Response != before.Response {
				t.Errorf("%v with a response %v stands, %v, want %v, %v", after.State, after.Response, err, before.State, before.Response)
			}
		})
	}
}
