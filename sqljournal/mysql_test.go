package sqljournal_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// However a transaction ends, nobody else gets its connection without autocommit: what others write by it would be lost. Nothing
// is committed either by turning autocommit on again.
//
// fault: MySQL: a connection without autocommit goes back to the pool
func TestConnectionComesBackWithAutocommit(t *testing.T) {
	t.Parallel()
	then := func(result error, faults ...func(*scene)) func(*scene, *sql.Tx, func()) error {
		return func(s *scene, _ *sql.Tx, _ func()) error {
			for _, fault := range faults {
				fault(s)
			}
			return result
		}
	}
	lostReply := func(statement string) func(*scene) {
		return func(s *scene) { s.proxy.DropReply(dbtest.Statement(statement)) }
	}
	for name, c := range map[string]struct {
		end       func(s *scene, tx *sql.Tx, leave func()) error
		committed int
	}{
		"commit": {then(nil), 1},
		"error":  {then(errHandler), 0},
		"panic":  {func(*scene, *sql.Tx, func()) error { panic(errHandler) }, 0},
		"DDL": {func(_ *scene, tx *sql.Tx, _ func()) error {
			return exec(tx, "create table more (id int)")
		}, 1},
		"its own ROLLBACK":         {func(_ *scene, tx *sql.Tx, _ func()) error { return tx.Rollback() }, 0},
		"canceled":                 {func(_ *scene, _ *sql.Tx, leave func()) error { leave(); return nil }, 0},
		"canceled, with an error":  {func(_ *scene, _ *sql.Tx, leave func()) error { leave(); return errHandler }, 0},
		"canceled, with a panic":   {func(_ *scene, _ *sql.Tx, leave func()) error { leave(); panic(errHandler) }, 0},
		"cut":                      {then(errHandler, func(s *scene) { s.proxy.Cut() }), 0},
		"reply to COMMIT lost":     {then(nil, lostReply("commit")), 1},
		"reply to ROLLBACK lost":   {then(errHandler, lostReply("rollback")), 0},
		"it is not known to be so": {then(nil, lostReply("set autocommit = 1")), 1},
		"autocommit is not set": {then(nil, func(s *scene) {
			s.proxy.CutBefore(dbtest.Statement("set autocommit = 1"))
		}), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, dbtest.MySQL(t), "transactional")
			pool := s.d.Open(t, dbtest.Through(s.proxy))
			pool.SetMaxOpenConns(1)
			s.j = sqljournal.Transactional(pool, namespace, sqljournal.MySQL())
			sqljournal.SetProbeTime(s.j, 100*time.Millisecond)
			s.begin(newRun(time.Hour))
			ctx, leave := context.WithCancel(s.ctx)
			defer leave()
			s.ctx = ctx
			func() {
				defer func() { _ = recover() }()
				_ = s.inTx(func(tx *sql.Tx) error { return c.end(s, tx, leave) })
			}()
			other := newRun(time.Hour)
			mustFail(t, "another's", take(pool, other), nil)
			mustHaveEffects(t, s.db, other, 1)
			mustHaveEffects(t, s.db, s.run, c.committed)
		})
	}
}

// The limits of the columns and of a packet. Expected: an error, and nothing is cut or stored.
func TestTooLongForMySQL(t *testing.T) {
	t.Parallel()
	d := dbtest.MySQL(t)
	db, name := withEffects(t, d), strings.Repeat("n", 600)
	mustPanic(t, "sqljournal.Transactional: namespace is longer than 600 bytes", func() {
		sqljournal.Transactional(db, name+"n", sqljournal.MySQL())
	})
	j := sqljournal.Transactional(d.Open(t, dbtest.Param("maxAllowedPacket", "0")), name, sqljournal.MySQL())
	run := newRun(time.Hour)
	run.Key = name + strings.TrimPrefix(run.Key, namespace)
	_, ctx := protected(j, begin(t, j, run), strings.Repeat("r", 65<<20))
	if err := j.InTx(ctx, nil, func(tx *sql.Tx) error { return take(tx, run) }); err == nil {
		t.Error("a record of 65 MiB is stored")
	}
	mustHaveEffects(t, db, run, 0)
}

// fault: MySQL: the probe's connection has a limit for locks, and nobody else gets that connection
func TestProbeLeavesNoSetting(t *testing.T) {
	t.Parallel()
	d := dbtest.MySQL(t)
	db := d.Open(t, dbtest.Param("innodb_lock_wait_timeout", "77"))
	db.SetMaxOpenConns(1)
	j := sqljournal.Intent(db, namespace, sqljournal.MySQL())
	run := begin(t, j, newRun(time.Hour))
	e, err := j.FindEntry(t.Context(), run, true)
	mustBe(t, "the outcome", e, err, begun, "")
	mustCount(t, db, 1, "dual where @@innodb_lock_wait_timeout = 77")
}

// Sweep, Expire and the probe lock no gaps between rows, into which others insert, whatever the default isolation is.
//
// fault: MySQL: an INSERT while Sweep, Expire or the probe has its transaction open
func TestOwnTransactionsLeaveGaps(t *testing.T) {
	t.Parallel()
	for last, own := range map[string]func(context.Context, *sqljournal.Journal, journal.Run) error{ // by their last statement
		"update onceguard_journal set run": func(ctx context.Context, j *sqljournal.Journal, _ journal.Run) error {
			_, err := j.Sweep(ctx, 0, time.Hour, leave)
			return err
		},
		"delete from onceguard_journal where key in": func(ctx context.Context, j *sqljournal.Journal, _ journal.Run) error {
			_, err := j.Expire(ctx)
			return err
		},
		"select key": func(ctx context.Context, j *sqljournal.Journal, run journal.Run) error {
			_, err := j.FindEntry(ctx, run, true)
			return err
		},
	} {
		t.Run(last, func(t *testing.T) {
			t.Parallel()
			d := dbtest.MySQL(t)
			s := newScene(t, d, "intent", d.Isolation(t, "repeatable read"))
			run := unfinishedRows(t, d, s.db, 1)[0]
			othersExpired.put(t, d, s.db, newRun(time.Hour))
			held, ended := s.proxy.HoldRequest(dbtest.Statement(last)), make(chan error, 1)
			go func() { ended <- own(t.Context(), s.j, run) }()
			held.Wait(t)
			beside := modes["intent"](d, t, dbtest.Param("innodb_lock_wait_timeout", "1"))
			for range 20 {
				begin(t, beside, newRun(time.Hour))
			}
			held.Lift()
			mustFail(t, last, <-ended, nil)
		})
	}
}

// The numbers of errors are found however they are wrapped, and in no text.
func TestErrorNumbers(t *testing.T) {
	t.Parallel()
	deadlock := &mysql.MySQLError{Number: 1213, SQLState: [5]byte{'4', '0', '0', '0', '1'}, Message: "Deadlock found"}
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{deadlock, 1213},
		{&mysql.MySQLError{Number: 1062, Message: "Duplicate entry 'Error 1213'"}, 1062},
		{fmt.Errorf("insert: %w", deadlock), 1213},
		{errors.Join(errors.New("Error 12"), fmt.Errorf("a: %w, b: %w", context.Canceled, deadlock)), 1213},
		{fmt.Errorf("Error 1213 (40001): Deadlock found: %w", context.Canceled), 0},
	} {
		if got := sqljournal.MySQLNumber(test.err); got != test.want {
			t.Errorf("%v: got %d, want %d", test.err, got, test.want)
		}
	}
}
