package dbtest_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// noted is a database with a table, through a proxy.
type noted struct {
	proxy      *dbtest.Proxy
	db, direct *sql.DB
}

func newNoted(t *testing.T) noted {
	t.Helper()
	d := dbtest.PostgreSQL(t)
	n := noted{proxy: dbtest.NewProxy(t, d.Server()), direct: d.Open(t)}
	n.db = d.Open(t, dbtest.Through(n.proxy))
	if _, err := n.direct.ExecContext(t.Context(), "create table notes (n integer)"); err != nil {
		t.Fatal(err)
	}
	return n
}

// write notes a number through the proxy.
func (n noted) write(ctx context.Context, i int) error {
	_, err := n.db.ExecContext(ctx, "insert into notes values ($1::integer)", i)
	return err
}

// written reports whether it stands there.
func (n noted) written(t *testing.T, i int) bool {
	t.Helper()
	var found bool
	err := n.direct.QueryRowContext(t.Context(), "select exists (select from notes where n = $1::integer)", i).Scan(&found)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var inserts = dbtest.Statement("INSERT INTO notes")

func TestCutBefore(t *testing.T) {
	t.Parallel()
	n := newNoted(t)
	cut := n.proxy.CutBefore(inserts)
	if err := n.write(t.Context(), 1); err == nil {
		t.Error("the connection is not cut")
	}
	cut.Wait(t)
	if n.written(t, 1) {
		t.Error("the server has executed it")
	}
	if err := n.write(t.Context(), 2); err != nil || !n.written(t, 2) {
		t.Errorf("a rule acts only once: %v", err)
	}
}

func TestDropReply(t *testing.T) {
	t.Parallel()
	n := newNoted(t)
	if err := n.write(t.Context(), 0); err != nil { // so that the statement is prepared
		t.Fatal(err)
	}
	drop := n.proxy.DropReply(inserts)
	if err := n.write(t.Context(), 1); err == nil {
		t.Error("the connection is not cut")
	}
	drop.Wait(t)
	if !n.written(t, 1) {
		t.Error("the server has not executed it")
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	n := newNoted(t)
	late := n.proxy.Delay(inserts)
	if err := n.write(t.Context(), 1); err == nil {
		t.Error("the connection is not cut")
	}
	late.Wait(t)
	if n.written(t, 1) {
		t.Error("the server has executed it")
	}
	late.Lift()
	for deadline := time.Now().Add(20 * time.Second); !n.written(t, 1); {
		if time.Now().After(deadline) {
			t.Fatal("it has not arrived")
		}
	}
}

func TestHoldReply(t *testing.T) {
	t.Parallel()
	n := newNoted(t)
	held := n.proxy.HoldReply(inserts)
	wrote := make(chan error, 1)
	go func() { wrote <- n.write(context.Background(), 1) }()
	held.Wait(t)
	if !n.written(t, 1) {
		t.Error("the server has not executed it")
	}
	select {
	case err := <-wrote:
		t.Errorf("the reply is not held: %v", err)
	default:
	}
	held.Lift()
	if err := <-wrote; err != nil {
		t.Errorf("the reply is not passed on: %v", err)
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	n := newNoted(t)
	held := n.proxy.HoldReply(inserts)
	wrote := make(chan error, 1)
	go func() { wrote <- n.write(context.Background(), 1) }()
	held.Wait(t)
	n.proxy.Cut()
	if err := <-wrote; err == nil {
		t.Error("the connection is not cut")
	}
	if err := n.write(t.Context(), 2); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}

func TestHoldRequest(t *testing.T) {
	t.Parallel()
	n := newNoted(t)
	for i, end := range []func(*dbtest.Rule){(*dbtest.Rule).Lift, func(*dbtest.Rule) { n.proxy.Cut() }} {
		held := n.proxy.HoldRequest(inserts)
		wrote := make(chan error, 1)
		go func() { wrote <- n.write(context.Background(), i) }()
		held.Wait(t)
		if n.written(t, i) {
			t.Error("the server has executed it")
		}
		end(held)
		lifted := i == 0
		if err := <-wrote; (err == nil) != lifted || n.written(t, i) != lifted {
			t.Errorf("lifted: %t, and the client got %v", lifted, err)
		}
	}
}

func TestDown(t *testing.T) {
	t.Parallel()
	n := newNoted(t)
	if err := n.write(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	n.proxy.Down()
	if err := n.write(t.Context(), 2); err == nil || n.written(t, 2) {
		t.Error("the server has executed it")
	}
	n.proxy.Up()
	if err := n.write(t.Context(), 3); err != nil || !n.written(t, 3) {
		t.Errorf("after Up: %v", err)
	}
}

// A client whose connection is closed finds no other one that still works.
func TestDownClosesAllAtOnce(t *testing.T) {
	t.Parallel()
	n := newNoted(t)
	for range 20 {
		var conns [9]*sql.Conn
		for i := range conns {
			c, err := n.db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			conns[i] = c
		}
		held := n.proxy.HoldReply(inserts)
		wrote := make(chan int, 1)
		go func() {
			_, _ = conns[0].ExecContext(context.Background(), "insert into notes values (0)")
			others := 0
			for _, c := range conns[1:] {
				if _, err := c.ExecContext(context.Background(), "insert into notes values (1)"); err == nil {
					others++
				}
			}
			wrote <- others
		}()
		held.Wait(t)
		n.proxy.Down()
		if others := <-wrote; others > 0 {
			t.Fatalf("%d other connections still worked", others)
		}
		n.proxy.Up()
	}
}

// A server of a test's own keeps what is committed, whether it ends in order or crashes.
func TestRestart(t *testing.T) {
	t.Parallel()
	d := dbtest.Own(t, dbtest.KindPostgreSQL)
	for _, end := range []func(testing.TB){d.Server().Stop, d.Server().Crash} {
		if _, err := d.Open(t).ExecContext(t.Context(), "create table if not exists notes (n integer); insert into notes values (1)"); err != nil {
			t.Fatal(err)
		}
		end(t)
		d.Server().Restart(t)
	}
	var n int
	if err := d.Open(t).QueryRowContext(t.Context(), "select count(*) from notes").Scan(&n); err != nil || n != 2 {
		t.Errorf("got %d rows, %v; want 2", n, err)
	}
}
