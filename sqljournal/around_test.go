package sqljournal_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// aroundSQL runs effect in a transaction of database/sql that is not the journal's.
func aroundSQL(ctx context.Context, j *sqljournal.Journal, d dbtest.Database, t testing.TB, effect string, after func(error) error) error {
	db := d.Open(t)
	return j.Around(ctx, func(complete func(sqljournal.Execer) error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // after the commit it does nothing
		if _, err := tx.ExecContext(ctx, effect); err != nil {
			return err
		}
		if err := after(complete(tx)); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// aroundPgx runs effect in a transaction of pgx.
func aroundPgx(ctx context.Context, j *sqljournal.Journal, d dbtest.Database, t testing.TB, effect string, after func(error) error) error {
	conn, err := pgx.Connect(ctx, d.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	return j.Around(ctx, func(complete func(sqljournal.Execer) error) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, effect); err != nil {
				return err
			}
			return after(complete(sqljournal.Pgx(tx)))
		})
	})
}

func TestAround(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		db, j := d.Open(t), modes[mode](d, t)
		mustExec(t, db, "drop table if exists effects")
		mustExec(t, db, "create table effects (id text not null)")
		around := []func(context.Context, *sqljournal.Journal, dbtest.Database, testing.TB, string, func(error) error) error{aroundSQL}
		if d.Kind() == dbtest.KindPostgreSQL {
			around = append(around, aroundPgx)
		}
		for _, around := range around {
			run := begin(t, j, newRun(time.Hour))
			x, ctx := protected(j, run, "response")
			effect := "insert into effects (id) values ('" + run.Key + "')"

			broken := errors.New("failed after complete")
			err := around(ctx, j, d, t, effect, func(error) error { return broken })
			mustFail(t, "code that fails after complete", err, broken)
			mustStand(t, j, db, run)

			x.record = nil
			err = around(ctx, j, d, t, effect, func(err error) error { return err })
			mustFail(t, "without a response", err, journal.ErrNoResponse)
			mustStand(t, j, db, run)

			x.record = []byte("response")
			if err := around(ctx, j, d, t, effect, func(err error) error { return err }); err != nil {
				t.Errorf("after failures: %v", err)
			}
			mustHaveEffects(t, db, run, 1)
			mustLook(t, j, run.Key, journal.Done, "response")
			mustFail(t, "once more", around(ctx, j, d, t, effect, func(err error) error { return err }), journal.ErrTwice)

			loser := retried(run)
			loser.Intent = run.Intent
			x, ctx = protected(j, loser, "the loser's")
			mustFail(t, "the loser", around(ctx, j, d, t, effect, func(err error) error { return err }), journal.ErrAnswered)
			if string(x.answer) != "response" {
				t.Errorf("the loser is answered with %q", x.answer)
			}
			mustHaveEffects(t, db, run, 1)
			if err := around(t.Context(), j, d, t, effect, func(err error) error { return err }); err != nil {
				t.Errorf("unprotected: %v", err)
			}
		}
	})
}

func TestAroundWithoutComplete(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		j := modes["transactional"](d, t)
		run := begin(t, j, newRun(time.Hour))
		_, ctx := protected(j, run, "response")
		err := j.Around(ctx, func(func(sqljournal.Execer) error) error { return nil })
		mustFail(t, "without complete", err, journal.ErrUncommitted)

		_, ctx = protected(j, run, "")
		err = j.Around(ctx, func(complete func(sqljournal.Execer) error) error {
			_ = complete(nil)
			return nil
		})
		mustFail(t, "with an error of complete that it ignores", err, journal.ErrNoResponse)
	})
}
