package sqljournal_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// This file is about transactions that end before their owner ends them.

// withLocks makes the tables that deadlock needs.
func withLocks(t *testing.T, db *sql.DB) {
	t.Helper()
	mustExec(t, db, "create table if not exists locks (id int primary key, n int) engine = InnoDB")
	mustExec(t, db, "create table if not exists heavy (n int) engine = InnoDB")
	mustExec(t, db, "insert ignore into locks values (1, 0), (2, 0)")
}

// deadlock makes a deadlock, of which tx is the victim, and returns its error. In the table locks, other has more work done
// than tx.
func deadlock(t *testing.T, db *sql.DB, tx *sql.Tx) error {
	t.Helper()
	other, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback() }()
	mustExec(t, other, "insert into heavy values "+strings.Repeat("(0), ", 200)+"(0)")
	mustExec(t, other, "update locks set n = n + 1 where id = 1")
	mustExec(t, tx, "update locks set n = n + 1 where id = 2")
	waits := make(chan error, 1)
	go func() { waits <- exec(other, "update locks set n = n + 1 where id = 2") }()
	err = exec(tx, "update locks set n = n + 1 where id = 1")
	if err == nil {
		t.Error("there is no deadlock")
	}
	mustFail(t, "the other transaction", <-waits, nil)
	return err
}

// ender ends a transaction, and returns what the handler then returns.
type ender func(t *testing.T, db *sql.DB, tx *sql.Tx) error

func ignoredDeadlock(t *testing.T, db *sql.DB, tx *sql.Tx) error {
	_ = deadlock(t, db, tx)
	return nil
}

func statements(all ...string) ender {
	return func(t *testing.T, _ *sql.DB, tx *sql.Tx) error {
		for _, statement := range all {
			mustExec(t, tx, statement)
		}
		return nil
	}
}

var ddl = statements("create table more (id int)")

// The handler's transaction may have ended before the record is stored. Expected: what the server has rolled back, and the
// handler reports, has not happened. Of everything else it is not known what has happened, and no retry runs, however the
// handler ends.
//
// fault: MySQL: a deadlock that the handler ignores, DDL, a second BEGIN, ROLLBACK or COMMIT in the transaction
func TestTransactionEndsEarly(t *testing.T) {
	t.Parallel()
	succeed := func(*scene, *sql.Tx) error { return nil }
	fail := func(*scene, *sql.Tx) error { return errHandler }
	for name, c := range map[string]struct {
		end        ender
		then       func(*scene, *sql.Tx) error // after the effect
		rolledBack bool
	}{
		"a deadlock that it returns":             {deadlock, succeed, true},
		"a deadlock that it ignores":             {ignoredDeadlock, succeed, false},
		"a deadlock that it ignores, and fails":  {ignoredDeadlock, fail, false},
		"a deadlock that it ignores, and panics": {ignoredDeadlock, func(*scene, *sql.Tx) error { panic(errHandler) }, false},
		"a deadlock that it ignores, and the connection breaks, so that nobody can ask": {ignoredDeadlock, func(s *scene, tx *sql.Tx) error {
			s.proxy.Cut()
			return take(tx, s.run)
		}, true},
		"a deadlock that it ignores, and another that it returns": {func(t *testing.T, db *sql.DB, tx *sql.Tx) error {
			_ = deadlock(t, db, tx)
			mustExec(t, tx, "insert into effects (id) select 'a part'")
			return deadlock(t, db, tx)
		}, succeed, true},
		"DDL":            {ddl, succeed, false},
		"DDL, and fails": {ddl, fail, false},
		"DDL, and a lock timeout that it returns": {func(t *testing.T, db *sql.DB, tx *sql.Tx) error {
			return errors.Join(ddl(t, db, tx), &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded"})
		}, succeed, false},
		"a second BEGIN":    {statements("start transaction"), succeed, false},
		"DDL and BEGIN":     {statements("create table more (id int)", "start transaction"), succeed, false},
		"COMMIT":            {statements("commit"), succeed, false},
		"ROLLBACK":          {statements("rollback"), succeed, false},
		"LOCK TABLES":       {statements("lock tables effects write, onceguard_journal write", "unlock tables"), succeed, false},
		"LOCK TABLES alone": {statements("lock tables effects write"), succeed, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for mode := range modes {
				s := newScene(t, dbtest.MySQL(t), mode)
				withLocks(t, s.db)
				var panicked any
				err := func() (err error) {
					defer func() { panicked = recover() }()
					return s.j.InTx(s.ctx, nil, func(tx *sql.Tx) error {
						if err := c.end(t, s.db, tx); err != nil {
							return err
						}
						return errors.Join(take(tx, s.run), c.then(s, tx))
					})
				}()
				switch {
				case c.rolledBack:
					s.mustHaveFailed(err)
					mustHaveEffects(t, s.db, journal.Run{Key: "a part"}, 0)
					s.mustBeCommitted(s.pay())
					continue
				case panicked == nil:
					s.mustBeUnknown(err)
				}
				s.mustRefuseRetries()
			}
		})
	}
}

// fault: the handler ends the transaction of InTx by itself. Expected: the outcome is unknown, and no retry runs.
func TestHandlerEndsItsTransaction(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		for _, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
			s := newScene(t, d, mode)
			s.mustBeUnknown(s.inTx(end))
			s.mustRefuseRetries()
		}
	})
}

// beginBeside begins a transaction of a handler, which has a connection of its own with that setting of autocommit.
func (s *scene) beginBeside(autocommit string) *sql.Tx {
	s.Helper()
	conn, err := s.db.Conn(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = conn.Close() })
	mustExec(s, conn, "set autocommit = "+autocommit)
	tx, err := conn.BeginTx(s.Context(), nil)
	if err != nil {
		s.Fatal(err)
	}
	return tx
}

// Around's transaction is not the journal's. Expected: what complete gets outside of a transaction is not committed alone, and
// after complete has failed, a COMMIT commits nothing, as in PostgreSQL. Without autocommit, complete cannot tell the handler's
// transaction from one that has followed it. What it has found once stays so, although a later attempt is a transaction as it
// should be.
//
// fault: MySQL: complete outside of a transaction, or after a deadlock that was ignored; COMMIT although complete has failed
func TestAroundEndsEarly(t *testing.T) {
	t.Parallel()
	// attempt is a transaction of the handler, which commits although complete may have failed.
	attempt := func(s *scene, autocommit string, end ender, complete func(sqljournal.Execer) error) error {
		tx := s.beginBeside(autocommit)
		err := errors.Join(end(s.T, s.db, tx), take(tx, s.run))
		return errors.Join(err, complete(tx), tx.Commit())
	}
	untouched := statements()
	for name, c := range map[string]struct {
		f     func(s *scene, complete func(sqljournal.Execer) error) error
		check func(s *scene, err error)
	}{
		"no transaction": {func(s *scene, complete func(sqljournal.Execer) error) error { return complete(s.db) }, func(s *scene, err error) {
			s.mustBeUnknown(err)
			s.mustRefuseRetries()
		}},
		"another was first": {func(s *scene, complete func(sqljournal.Execer) error) error {
			mustExec(s, s.db, "delete from onceguard_journal")
			othersDone.put(s.T, s.d, s.db, s.run)
			err := attempt(s, "1", untouched, complete)
			mustFail(s, "complete", err, sqljournal.ErrLost)
			return nil
		}, func(s *scene, err error) {
			mustFail(s, "Around", err, journal.ErrAnswered)
			mustHaveEffects(s, s.db, s.run, 0)
		}},
		"autocommit is off": {func(s *scene, complete func(sqljournal.Execer) error) error {
			return attempt(s, "0", untouched, complete)
		}, mustNameAutocommit},
		"autocommit is off, and a deadlock": {func(s *scene, complete func(sqljournal.Execer) error) error {
			return attempt(s, "0", ignoredDeadlock, complete)
		}, mustNameAutocommit},
		"a deadlock, and a second attempt": {func(s *scene, complete func(sqljournal.Execer) error) error {
			_ = attempt(s, "1", ignoredDeadlock, complete)
			return attempt(s, "1", untouched, complete)
		}, func(s *scene, err error) {
			s.mustBeUnknown(err)
			mustHaveEffects(s, s.db, s.run, 1) // of the first, which the server has committed after the deadlock
			s.mustRefuseRetries()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for mode := range modes {
				s := newScene(t, dbtest.MySQL(t), mode)
				withLocks(t, s.db)
				c.check(s, s.j.Around(s.ctx, func(complete func(sqljournal.Execer) error) error { return c.f(s, complete) }))
			}
		})
	}
}

func mustNameAutocommit(s *scene, err error) {
	s.Helper()
	if err == nil || !strings.Contains(err.Error(), "autocommit") {
		s.Errorf("got %v, want that autocommit is off", err)
	}
	s.mustStand()
}

// The function of a sweep writes in a transaction outside of a run, which may have ended before Done or Free. Expected: it fails,
// nothing is committed in InTx, and the row is handed out again.
//
// fault: MySQL: a deadlock that the function of Sweep ignores, or DDL, before Done or Free or without them
func TestSweepsTransactionEndsEarly(t *testing.T) {
	t.Parallel()
	type last func(sqljournal.Unfinished, *sql.Tx) error
	doneLast := func(u sqljournal.Unfinished, tx *sql.Tx) error {
		return u.Done(context.Background(), tx, time.Hour, []byte("response"))
	}
	freeLast := func(u sqljournal.Unfinished, tx *sql.Tx) error { return u.Free(context.Background(), tx) }
	inTx := func(s *scene, f func(*sql.Tx) error) error { return s.j.InTx(s.Context(), nil, f) }
	itsOwn := func(s *scene, f func(*sql.Tx) error) error {
		tx, err := s.db.Begin()
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // after the commit it does nothing
		if err := f(tx); err != nil {
			return err
		}
		return tx.Commit()
	}
	for name, c := range map[string]struct {
		in   func(*scene, func(*sql.Tx) error) error
		end  ender
		last last
		left int // effects after the first sweep
	}{
		"InTx, deadlock, Done": {inTx, ignoredDeadlock, doneLast, 0},
		"InTx, deadlock, Free": {inTx, ignoredDeadlock, freeLast, 0},
		"InTx, deadlock, Free ignored": {inTx, ignoredDeadlock, func(u sqljournal.Unfinished, tx *sql.Tx) error {
			_ = freeLast(u, tx)
			return nil
		}, 0},
		"InTx, deadlock, neither": {inTx, ignoredDeadlock, func(sqljournal.Unfinished, *sql.Tx) error { return nil }, 0},
		"deadlock, Done":          {itsOwn, ignoredDeadlock, doneLast, 0},
		"deadlock, Free":          {itsOwn, ignoredDeadlock, freeLast, 0},
		"DDL, Done":               {itsOwn, ddl, doneLast, 1},
		"DDL, Free":               {itsOwn, ddl, freeLast, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, dbtest.MySQL(t), "intent")
			withLocks(t, s.db)
			run := unfinishedRows(t, s.d, s.db, 1)[0]
			sweep := func(end ender) error {
				_, err := s.j.Sweep(t.Context(), 0, time.Microsecond, func(_ context.Context, u sqljournal.Unfinished) error {
					return c.in(s, func(tx *sql.Tx) error {
						return errors.Join(take(tx, run), end(t, s.db, tx), c.last(u, tx))
					})
				})
				return err
			}
			if err := sweep(c.end); err == nil || !strings.Contains(err.Error(), "has ended") {
				t.Errorf("got %v, want that the transaction has ended", err)
			}
			mustHaveEffects(t, s.db, run, c.left)
			mustLook(t, s.j, run.Key, journal.Unfinished, "")
			mustFail(t, "the next sweep", sweep(statements()), nil)
			mustHaveEffects(t, s.db, run, c.left+1)
		})
	}
}
