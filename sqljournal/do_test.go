package sqljournal_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// newLocker returns a Locker on a Redis of its own.
func newLocker(t *testing.T) (*lock.Locker, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	locker := lock.New(client, namespace, lock.WithOpTimeout(30*time.Second))
	t.Cleanup(func() { _ = locker.Close(context.Background()); _ = client.Close() })
	return locker, server
}

// inbox takes a message by Do, whose function has an effect in a scene's database.
type inbox struct {
	*scene
	redis *miniredis.Miniredis
	guard *once.Guard
	opts  *sql.TxOptions
	calls int // of the function
}

func newInbox(s *scene, opts ...once.Option) *inbox {
	locker, server := newLocker(s.T)
	return &inbox{scene: s, redis: server, guard: once.New(locker, append(opts, once.WithJournal(s.j))...)}
}

// do takes the message: f is called after the effect.
func (in *inbox) do(f func(*sql.Tx) error) (string, bool, error) {
	key := once.Key{Operation: "pay", Scope: once.Anyone, ID: in.Name()}
	return sqljournal.Do(in.Context(), in.guard, key, in.opts, func(_ context.Context, tx *sql.Tx) (string, error) {
		in.calls++
		return "paid", errors.Join(take(tx, in.run), f(tx))
	})
}

func (in *inbox) take() (string, bool, error) { return in.do(func(*sql.Tx) error { return nil }) }

// mustTake checks that the message is taken now or, with replayed, that it was before.
func (in *inbox) mustTake(replayed bool) {
	in.Helper()
	if v, again, err := in.take(); v != "paid" || again != replayed || err != nil {
		in.Errorf("got %q, replayed %v, %v, want paid, %v", v, again, err, replayed)
	}
	mustHaveEffects(in, in.db, in.run, 1)
}

// mustBeStored checks that the message is not taken again after an error.
func (in *inbox) mustBeStored() {
	in.Helper()
	var stored *once.StoredError
	if _, replayed, err := in.take(); !replayed || !errors.As(err, &stored) {
		in.Errorf("after an error that is stored: replayed %v, %v", replayed, err)
	}
	mustHaveEffects(in, in.db, in.run, 0)
}

// A transaction that fails leaves nothing. Whether the message may be taken again, the error's mark decides.
func TestDo(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		for name, test := range map[string]func(in *inbox){
			"succeeds": func(in *inbox) {
				in.mustTake(false)
				in.mustTake(true)
				in.redis.FlushAll()
				in.mustTake(true)
			},
			"nothing happened": func(in *inbox) {
				v, _, err := in.do(func(*sql.Tx) error { return once.NothingHappened(errHandler) })
				if v != "" {
					in.Errorf("it returns %q", v)
				}
				mustFail(in, "Do", err, errHandler)
				in.mustTake(false)
			},
			"final": func(in *inbox) {
				_, _, err := in.do(func(*sql.Tx) error { return once.Final(errHandler) })
				mustFail(in, "Do", err, errHandler)
				in.mustBeStored()
			},
		} {
			t.Run(name, func(t *testing.T) { test(newInbox(newScene(t, d, mode))) })
		}
	})
}

func TestDoWithoutTheJournal(t *testing.T) {
	t.Parallel()
	in := newInbox(newScene(t, dbtest.SQLite(t), "transactional"))
	locker, _ := newLocker(t)
	in.guard = once.New(locker)
	_, _, err := in.take()
	mustFail(t, "Do", err, sqljournal.ErrOther)
	if in.calls != 0 {
		t.Error("the function was called")
	}
}

// What the database refuses has not happened, so the next call runs, also at most once. What f itself returns is stored: it may
// have had an effect elsewhere.
//
// fault: another transaction makes COMMIT or a statement fail with 40001, 1213, 1020 or 1205. Expected: one effect, by the next
// call, unless f says more; the error of a lock timeout is stored as any other
func TestDoAtMostOnceRunsAgain(t *testing.T) {
	t.Parallel()
	type conflict func(in *inbox, tx *sql.Tx) error
	count, change := "select count(*) from locks", "update locks set n = n + 1 where id = 1"
	changed := func(in *inbox, tx *sql.Tx) error {
		return cmp.Or(exec(tx, count), exec(in.db, change), exec(tx, change))
	}
	skewed := func(in *inbox, tx *sql.Tx) error {
		beside, err := in.db.BeginTx(in.Context(), in.opts)
		if err != nil {
			return err
		}
		return cmp.Or(exec(tx, "insert into locks select count(*) + 10, 0 from locks"),
			exec(beside, "insert into locks select count(*) + 20, 0 from locks"), beside.Commit())
	}
	deadlocked := func(in *inbox, tx *sql.Tx) error { return deadlock(in.T, in.db, tx) }
	timeout := func(in *inbox, tx *sql.Tx) error {
		other, err := in.db.Begin()
		if err != nil {
			return err
		}
		defer func() { _ = other.Rollback() }()
		return cmp.Or(exec(other, change), exec(tx, change))
	}
	for name, c := range map[string]struct {
		kind     dbtest.Kind
		conflict conflict
		number   string // of the error
		again    bool
	}{
		"COMMIT fails":           {dbtest.KindPostgreSQL, skewed, "40001", true},
		"a statement fails":      {dbtest.KindPostgreSQL, changed, "40001", true},
		"f fails":                {dbtest.KindPostgreSQL, func(*inbox, *sql.Tx) error { return errHandler }, errHandler.Error(), false},
		"a deadlock":             {dbtest.KindMySQL, deadlocked, "1213", true},
		"a row that has changed": {dbtest.KindMySQL, changed, "1020", true},
		"a lock timeout":         {dbtest.KindMySQL, timeout, "1205", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := dbtest.New(t, c.kind)
			var settings []dbtest.Setting
			if c.kind == dbtest.KindMySQL {
				settings = append(settings, dbtest.Param("innodb_lock_wait_timeout", "1"))
			}
			if c.number == "1020" {
				if !d.Server.IsMariaDB {
					t.Skip("left out: MySQL has no innodb_snapshot_isolation")
				}
				settings = append(settings, dbtest.Param("innodb_snapshot_isolation", "1"))
			}
			in := newInbox(newScene(t, d, "transactional", settings...), once.WithAtMostOnce())
			mustExec(t, in.db, "create table locks (id int primary key, n int)")
			mustExec(t, in.db, "create table heavy (n int)")
			mustExec(t, in.db, "insert into locks values (1, 0), (2, 0)")
			in.opts = &sql.TxOptions{Isolation: sql.LevelSerializable}
			if c.kind == dbtest.KindMySQL {
				in.opts.Isolation = sql.LevelRepeatableRead
			}
			key := once.Key{Operation: "pay", Scope: once.Anyone, ID: t.Name()}
			v, replayed, err := sqljournal.Do(t.Context(), in.guard, key, in.opts, func(_ context.Context, tx *sql.Tx) (string, error) {
				return "", c.conflict(in, tx)
			})
			if v != "" || replayed || err == nil || !strings.Contains(err.Error(), c.number) {
				t.Errorf("the first: %q, %v, %v, want %s", v, replayed, err, c.number)
			}
			if c.again {
				in.mustTake(false)
			} else {
				in.mustBeStored()
			}
		})
	}
}

// fault: BEGIN does not arrive, or the reply to COMMIT is lost. Expected: a function that was not called may be called again.
func TestDoLosesMessages(t *testing.T) {
	t.Parallel()
	eachServerMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		in := newInbox(newScene(t, d, mode))
		if mode == "transactional" {
			in = newInbox(in.scene, once.WithAtMostOnce())
		}
		cut := in.proxy.CutBefore(dbtest.Statement("begin"))
		if _, _, err := in.take(); err == nil || in.calls != 0 {
			t.Errorf("got %v after %d calls, want the connection's error", err, in.calls)
		}
		cut.Wait(t)
		lost := in.proxy.DropReply(commits(mode))
		in.mustTake(false)
		lost.Wait(t)
		in.mustTake(true)
	})
}
