package sqljournal_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

var errHandler = errors.New("the handler's")

func TestInTx(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		s := newScene(t, d, mode)
		mustFail(t, "a handler that fails", s.inTx(func(*sql.Tx) error { return errHandler }), errHandler)
		s.mustStand()
		s.x.record = nil
		mustFail(t, "a handler without a response", s.pay(), journal.ErrNoResponse)
		s.mustStand()
		mustPanic(t, "out of order", func() { _ = s.inTx(func(*sql.Tx) error { panic("out of order") }) })
		s.mustStand()
		s.x.record = []byte("response")
		s.mustBeCommitted(s.pay())
		e, err := s.j.Begin(t.Context(), retried(s.run))
		mustBe(t, "Begin of a retry", e, err, journal.Done, "response")
	})
}

func TestInTxUnprotected(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		s := newScene(t, d, "transactional")
		s.ctx = t.Context()
		mustFail(t, "a handler that fails", s.inTx(func(*sql.Tx) error { return errHandler }), errHandler)
		mustHaveEffects(t, s.db, s.run, 0)
		mustFail(t, "InTx", s.pay(), nil)
		mustHaveEffects(t, s.db, s.run, 1)
		mustLook(t, s.j, s.run.Key, journal.Absent, "")
		err := s.j.InTx(t.Context(), &sql.TxOptions{ReadOnly: true}, func(tx *sql.Tx) error {
			var n int
			return tx.QueryRow("select count(*) from effects").Scan(&n)
		})
		mustFail(t, "a transaction that only reads", err, nil)
	})
}

// around runs a transaction that is not the journal's. After complete it calls after with the error, and commits unless that
// returns one.
type around func(s *scene, after func(error) error) error

func aroundSQL(s *scene, after func(error) error) error {
	return s.j.Around(s.ctx, func(complete func(sqljournal.Execer) error) error {
		tx, err := s.db.BeginTx(s.ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // after the commit it does nothing
		if err := errors.Join(take(tx, s.run), after(complete(tx))); err != nil {
			return err
		}
		return tx.Commit()
	})
}

func aroundPgx(s *scene, after func(error) error) error {
	conn, err := pgx.Connect(s.ctx, s.d.URL())
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	return s.j.Around(s.ctx, func(complete func(sqljournal.Execer) error) error {
		return pgx.BeginFunc(s.ctx, conn, func(tx pgx.Tx) error {
			return errors.Join(take(sqljournal.Pgx(tx), s.run), after(complete(sqljournal.Pgx(tx))))
		})
	})
}

func TestAround(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		all := []around{aroundSQL}
		if d.Kind == dbtest.KindPostgreSQL {
			all = append(all, aroundPgx)
		}
		commit := func(err error) error { return err }
		for _, around := range all {
			s := newScene(t, d, mode)
			mustFail(t, "code that fails after complete", around(s, func(error) error { return errHandler }), errHandler)
			s.mustStand()
			s.x.record = nil
			mustFail(t, "without a response", around(s, commit), journal.ErrNoResponse)
			s.mustStand()
			s.x.record = []byte("response")
			s.mustBeCommitted(around(s, commit))

			loser := retried(s.run)
			loser.Intent = s.run.Intent
			s.run = loser
			s.x, s.ctx = protected(s.j, loser, "the loser's")
			mustFail(t, "the loser", around(s, commit), journal.ErrAnswered)
			if string(s.x.answer) != "response" {
				t.Errorf("the loser is answered with %q", s.x.answer)
			}
			mustHaveEffects(t, s.db, s.run, 1)
			s.ctx = t.Context()
			mustFail(t, "unprotected", around(s, commit), nil)
		}
	})
}

// The function of Around may call complete never, with an error that it ignores, or once more after a transaction that it has
// rolled back.
func TestAroundCallsComplete(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		s := newScene(t, d, mode)
		err := s.j.Around(s.ctx, func(func(sqljournal.Execer) error) error { return nil })
		mustFail(t, "never", err, sqljournal.ErrNeverComplete)
		s.x.record = nil
		err = s.j.Around(s.ctx, func(complete func(sqljournal.Execer) error) error {
			_ = complete(nil)
			return nil
		})
		mustFail(t, "with an error that it ignores", err, journal.ErrNoResponse)
		s.x.record = []byte("response")
		s.mustBeCommitted(s.j.Around(s.ctx, func(complete func(sqljournal.Execer) error) error {
			for _, end := range []func(*sql.Tx) error{(*sql.Tx).Rollback, (*sql.Tx).Commit} {
				tx, err := s.db.BeginTx(s.ctx, nil)
				if err != nil {
					return err
				}
				if err := errors.Join(take(tx, s.run), complete(tx), end(tx)); err != nil {
					return err
				}
			}
			return nil
		}))
	})
}

// A handler whose row was handed out meanwhile does not take effect, and is told that it has nothing to answer.
func TestLateHandler(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		for then, c := range map[string]struct {
			sweep func(ctx context.Context, u sqljournal.Unfinished, db *sql.DB) error
			again bool // a retry has begun
			want  error
		}{
			"held": {func(context.Context, sqljournal.Unfinished, *sql.DB) error { return nil }, false, journal.ErrAnswered},
			"done": {func(ctx context.Context, u sqljournal.Unfinished, db *sql.DB) error {
				return u.Done(ctx, db, time.Hour, nil)
			}, false, journal.ErrAnswered},
			"free":               {func(ctx context.Context, u sqljournal.Unfinished, db *sql.DB) error { return u.Free(ctx, db) }, false, sqljournal.ErrLost},
			"free and run again": {func(ctx context.Context, u sqljournal.Unfinished, db *sql.DB) error { return u.Free(ctx, db) }, true, journal.ErrAnswered},
		} {
			t.Run(then, func(t *testing.T) {
				s := newScene(t, d, "intent")
				expireLimit(t, d, s.db, s.run)
				mustSweep(t, s.j, 1, func(ctx context.Context, u sqljournal.Unfinished) error { return c.sweep(ctx, u, s.db) })
				late, ctx := s.x, s.ctx
				if c.again {
					s.begin(retried(s.run))
				}
				err := s.j.InTx(ctx, nil, func(tx *sql.Tx) error { return take(tx, s.run) })
				mustFail(t, "the late handler", err, c.want)
				mustHaveEffects(t, s.db, s.run, 0)
				if late.unknown {
					t.Error("it is said not to be known what happened")
				}
				if c.again {
					s.mustBeCommitted(s.pay())
				}
			})
		}
	})
}

// A row that was stored and has expired since Begin keeps a transaction from being committed, and the next run replaces it.
func TestExpiredRowIsReplaced(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		s := newScene(t, d, "transactional")
		othersExpired.put(t, d, s.db, s.run)
		mustFail(t, "InTx", s.pay(), sqljournal.ErrLost)
		s.mustStand()
		s.begin(retried(s.run))
		s.mustBeCommitted(s.pay())
	})
}

// A run of another journal is refused before anything happens.
func TestOtherJournal(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		s := newScene(t, d, mode)
		_, s.ctx = protected(sqljournal.Intent(s.db, namespace, d.Kind.Options()...), s.run, "response")
		mustFail(t, "InTx", s.pay(), sqljournal.ErrOther)
		mustFail(t, "Around", s.j.Around(s.ctx, func(func(sqljournal.Execer) error) error {
			t.Error("Around has called its function")
			return nil
		}), sqljournal.ErrOther)
		mustFail(t, "Note", s.j.Note(s.ctx, nil), sqljournal.ErrOther)
		s.mustStand()
	})
}
