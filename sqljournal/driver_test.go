package sqljournal_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
)

// fakeDriver is a database whose transactions end as a test says. Its statements succeed.
type fakeDriver struct {
	driver.Conn
	begin    error // of each transaction
	one      bool  // only the first transaction begins
	begun    context.Context
	commit   func() error
	rollback error

	opened int
	sent   []string
	closed chan struct{} // gets a value when a connection is closed, if it has room
}

func (f *fakeDriver) Connect(context.Context) (driver.Conn, error) { f.opened++; return f, nil }
func (*fakeDriver) Driver() driver.Driver                          { return nil }
func (f *fakeDriver) Commit() error                                { return f.commit() }
func (*fakeDriver) Prepare(string) (driver.Stmt, error)            { return nil, errors.New("no rows") }
func (f *fakeDriver) Rollback() error                              { return f.rollback }

func (f *fakeDriver) Close() error {
	select {
	case f.closed <- struct{}{}:
	default:
	}
	return nil
}

func (f *fakeDriver) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	if f.one && f.begun != nil {
		return nil, errors.New("no other transaction")
	}
	f.begun = ctx
	return f, f.begin
}

func (f *fakeDriver) ExecContext(_ context.Context, statement string, _ []driver.NamedValue) (driver.Result, error) {
	f.sent = append(f.sent, statement)
	return driver.RowsAffected(1), nil
}

// fault: the network is silent after COMMIT was sent, so that Tx.Commit returns only at the run's limit. Expected: the outcome is
// unknown 3 s after COMMIT was sent.
func TestCommitIntoSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silence := make(chan struct{})
		f := &fakeDriver{commit: func() error { <-silence; return driver.ErrBadConn }, one: true}
		db := sql.OpenDB(f)
		defer db.Close()
		j := sqljournal.Transactional(db, namespace)
		x, ctx := protected(j, newRun(time.Hour), "response")
		start := time.Now()
		mustFail(t, "InTx", j.InTx(ctx, nil, func(*sql.Tx) error { return nil }), journal.ErrAnswered)
		if took := time.Since(start); took != sqljournal.ProbeTime || !x.unknown {
			t.Errorf("it took %v, unknown %v; want %v", took, x.unknown, sqljournal.ProbeTime)
		}
		close(silence)
	})
}

// fault: the caller's context ends before COMMIT, or while it is under way. Expected: before, the transaction is rolled back at
// once, since it may hold locks for as long as the handler does something else. That of the COMMIT goes on: a server that waits for
// its standby would stop waiting, and show a transaction that a failover may lose.
func TestContextOfATransaction(t *testing.T) {
	t.Parallel()
	for _, committing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeDriver{one: true}
			db := sql.OpenDB(f)
			defer db.Close()
			j := sqljournal.Transactional(db, namespace)
			_, ctx := protected(j, newRun(time.Hour), "response")
			ctx, leave := context.WithCancel(ctx)
			var then error // of the transaction's context
			end := func() error {
				leave()
				synctest.Wait()
				then = f.begun.Err()
				return nil
			}
			f.commit = end
			_ = j.InTx(ctx, nil, func(*sql.Tx) error {
				if committing {
					return nil
				}
				return end()
			})
			if (then == nil) != committing {
				t.Errorf("committing %t: the transaction's context ends with %v", committing, then)
			}
		})
	}
}

// Drivers say that a connection is bad also if the server refuses each statement, for example as it is read-only. Expected: only
// as many tries follow each other at once as the pool had idle connections, which may be from before a restart.
//
// fault: the probe of a lost COMMIT on a server that became read-only, with rejectReadOnly of the driver for MySQL
func TestProbePauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const idle, tries = 5, 4
		f := &fakeDriver{begin: driver.ErrBadConn}
		db := sql.OpenDB(f)
		defer db.Close()
		db.SetMaxIdleConns(idle)
		var conns []*sql.Conn
		for range idle {
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			_ = conn.Close()
		}
		j := sqljournal.Transactional(db, namespace)
		sqljournal.SetProbeTime(j, tries*50*time.Millisecond)
		if _, err := j.FindEntry(t.Context(), newRun(time.Hour), true); err == nil {
			t.Error("got no error")
		}
		if f.opened < idle || f.opened > idle+1+tries {
			t.Errorf("%d connections, want at most %d", f.opened, idle+1+tries)
		}
	})
}

// An open transaction would be committed by turning autocommit on.
//
// fault: MySQL: COMMIT or ROLLBACK fails, and the connection goes on
func TestConnectionIsClosedIfItsTransactionMayBeOpen(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{"commit": nil, "rollback": errHandler} {
		failed := errors.New("it has not ended")
		f := &fakeDriver{commit: func() error { return failed }, rollback: failed, closed: make(chan struct{}, 1)}
		db := sql.OpenDB(f)
		j := sqljournal.Transactional(db, namespace, sqljournal.MySQL())
		if err := j.InTx(t.Context(), nil, func(*sql.Tx) error { return result }); err == nil {
			t.Errorf("%s: no error", name)
		}
		<-f.closed
		if slices.Contains(f.sent, "set autocommit = 1") || !slices.Contains(f.sent, "set autocommit = 0") {
			t.Errorf("%s: the connection got %q", name, f.sent)
		}
		mustFail(t, "Close", db.Close(), nil)
	}
}
