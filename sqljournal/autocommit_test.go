package sqljournal_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// What the handler does after a deadlock that it ignores is rolled back, also if nobody is left to ask for it. Expected: nothing
// has happened, and a retry runs.
//
// fault: MySQL: the connection breaks after a deadlock that the handler ignores
func TestConnectionBreaksAfterDeadlock(t *testing.T) {
	t.Parallel()
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, dbtest.MySQL(t), mode)
			withLocks(t, f.db)
			err := f.j.InTx(f.ctx, nil, func(tx *sql.Tx) error {
				mustDeadlock(t, f.db, tx)
				if err := take(tx, f.run); err != nil {
					t.Error(err)
				}
				f.proxy.Cut()
				return take(tx, f.run)
			})
			if err == nil || err == journal.ErrAnswered {
				t.Errorf("InTx: %v", err)
			}
			mustStand(t, f.j, f.db, f.run)
			if err := f.pay(); err != nil {
				t.Errorf("InTx again: %v", err)
			}
			mustHaveEffects(t, f.db, f.run, 1)
		})
	}
}

// However a transaction ends, nobody else gets its connection without autocommit: what others write by it would be lost. Nothing
// is committed either by turning autocommit on again.
//
// fault: MySQL: a connection without autocommit goes back to the pool
func TestConnectionComesBackWithAutocommit(t *testing.T) {
	t.Parallel()
	errHandler := errors.New("the handler's")
	for name, end := range map[string]func(tx *sql.Tx, cancel context.CancelFunc, proxy *dbtest.Proxy) error{
		"commit": func(*sql.Tx, context.CancelFunc, *dbtest.Proxy) error { return nil },
		"error":  func(*sql.Tx, context.CancelFunc, *dbtest.Proxy) error { return errHandler },
		"panic":  func(*sql.Tx, context.CancelFunc, *dbtest.Proxy) error { panic(errHandler) },
		"DDL": func(tx *sql.Tx, _ context.CancelFunc, _ *dbtest.Proxy) error {
			_, err := tx.Exec("create table more (id int)")
			return err
		},
		"its own ROLLBACK":        func(tx *sql.Tx, _ context.CancelFunc, _ *dbtest.Proxy) error { return tx.Rollback() },
		"canceled":                func(_ *sql.Tx, cancel context.CancelFunc, _ *dbtest.Proxy) error { cancel(); return nil },
		"canceled, with an error": func(_ *sql.Tx, cancel context.CancelFunc, _ *dbtest.Proxy) error { cancel(); return errHandler },
		"canceled, with a panic":  func(_ *sql.Tx, cancel context.CancelFunc, _ *dbtest.Proxy) error { cancel(); panic(errHandler) },
		"cut":                     func(_ *sql.Tx, _ context.CancelFunc, proxy *dbtest.Proxy) error { proxy.Cut(); return errHandler },
		"reply to COMMIT lost": func(_ *sql.Tx, _ context.CancelFunc, proxy *dbtest.Proxy) error {
			proxy.DropReply(dbtest.Statement("commit"))
			return nil
		},
		"reply to ROLLBACK lost": func(_ *sql.Tx, _ context.CancelFunc, proxy *dbtest.Proxy) error {
			proxy.DropReply(dbtest.Statement("rollback"))
			return errHandler
		},
		"autocommit is not set": func(_ *sql.Tx, _ context.CancelFunc, proxy *dbtest.Proxy) error {
			proxy.CutBefore(dbtest.Statement("set autocommit = 1"))
			return nil
		},
		"it is not known to be so": func(_ *sql.Tx, _ context.CancelFunc, proxy *dbtest.Proxy) error {
			proxy.DropReply(dbtest.Statement("set autocommit = 1"))
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := dbtest.MySQL(t)
			proxy, beside := dbtest.NewProxy(t, d.Server()), withEffects(t, d)
			db := d.Open(t, dbtest.Through(proxy))
			db.SetMaxOpenConns(1)
			j := sqljournal.Transactional(db, namespace, sqljournal.MySQL())
			sqljournal.SetProbeTime(j, 100*time.Millisecond)
			run := begin(t, j, newRun(time.Hour))
			_, ctx := protected(j, run, "response")
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			func() {
				defer func() { _ = recover() }()
				_ = j.InTx(ctx, nil, func(tx *sql.Tx) error {
					if err := take(tx, run); err != nil {
						t.Error(err)
					}
					return end(tx, cancel, proxy)
				})
			}()
			other := newRun(time.Hour)
			if _, err := db.Exec("insert into effects (id) values ('" + other.Key + "')"); err != nil {
				t.Error(err)
			}
			mustHaveEffects(t, beside, other, 1)
			isCommitted := map[string]int{"commit": 1, "DDL": 1, "reply to COMMIT lost": 1, "autocommit is not set": 1, "it is not known to be so": 1}
			mustHaveEffects(t, beside, run, isCommitted[name])
		})
	}
}

// fault: MySQL: all connections of the pool are broken, for example because the server was restarted
func TestPoolIsStale(t *testing.T) {
	t.Parallel()
	d := dbtest.MySQL(t)
	proxy, beside := dbtest.NewProxy(t, d.Server()), withEffects(t, d)
	db := d.Open(t, dbtest.Through(proxy))
	conns := make([]*sql.Conn, 8)
	for i := range conns {
		var err error
		if conns[i], err = db.Conn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, conn := range conns {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	proxy.Cut()
	j, run := sqljournal.Transactional(db, namespace, sqljournal.MySQL()), newRun(time.Hour)
	_, ctx := protected(j, run, "response")
	if err := j.InTx(ctx, nil, func(tx *sql.Tx) error { return take(tx, run) }); err != nil {
		t.Errorf("InTx: %v", err)
	}
	mustHaveEffects(t, beside, run, 1)
}

// An open transaction would be committed by turning autocommit on.
//
// fault: MySQL: COMMIT or ROLLBACK fails, and the connection goes on
func TestConnectionIsClosedIfItsTransactionMayBeOpen(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{"commit": nil, "rollback": errors.New("the handler's")} {
		c := &unending{closed: make(chan struct{})}
		db := sql.OpenDB(connector{c})
		j := sqljournal.Transactional(db, namespace, sqljournal.MySQL())
		if err := j.InTx(t.Context(), nil, func(*sql.Tx) error { return result }); err == nil {
			t.Errorf("%s: no error", name)
		}
		<-c.closed
		if slices.Contains(c.sent, "set autocommit = 1") || !slices.Contains(c.sent, "set autocommit = 0") {
			t.Errorf("%s: the connection got %q", name, c.sent)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// unending is a connection whose transactions do not end.
type unending struct {
	sent   []string
	closed chan struct{}
}

func (*unending) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrSkip }
func (c *unending) Begin() (driver.Tx, error)         { return c, nil }
func (*unending) Commit() error                       { return errors.New("no COMMIT") }
func (*unending) Rollback() error                     { return errors.New("no ROLLBACK") }
func (c *unending) Close() error                      { close(c.closed); return nil }

func (c *unending) ExecContext(_ context.Context, statement string, _ []driver.NamedValue) (driver.Result, error) {
	c.sent = append(c.sent, statement)
	return driver.RowsAffected(0), nil
}

// connector is a database with one connection.
type connector struct{ conn driver.Conn }

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.conn, nil }
func (connector) Driver() driver.Driver                          { return nil }
