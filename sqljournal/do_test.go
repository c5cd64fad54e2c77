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

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// inbox takes a message, which has an effect in a database.
type inbox struct {
	t       *testing.T
	db      *sql.DB
	redis   *miniredis.Miniredis // nil without Redis
	guard   *once.Guard
	message once.Key
	effect  journal.Run
	calls   int // of the function
}

func newInbox(t *testing.T, db *sql.DB, message string, opts ...once.Option) *inbox {
	t.Helper()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	in := newInboxOn(t, lock.New(client, namespace, lock.WithOpTimeout(30*time.Second)), db, message, opts...)
	in.redis = server
	return in
}

func newInboxOn(t *testing.T, locker *lock.Locker, db *sql.DB, message string, opts ...once.Option) *inbox {
	t.Helper()
	t.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &inbox{
		t: t, db: db, guard: once.New(locker, opts...),
		message: once.Key{Operation: "pay", Scope: once.Anyone, ID: message}, effect: journal.Run{Key: message},
	}
}

// eachInbox runs a test for each kind of database and of journal, and for an intent journal without Redis.
func eachInbox(t *testing.T, test func(in *inbox, j *sqljournal.Journal)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		db := withEffects(t, d)
		for mode, open := range modes {
			t.Run(mode, func(t *testing.T) {
				j := open(d, t)
				test(newInbox(t, db, mode, once.WithJournal(j)), j)
			})
		}
		t.Run("alone", func(t *testing.T) {
			j := modes["intent"](d, t)
			test(newInboxOn(t, lock.None(namespace), db, "alone", once.WithJournal(j)), j)
		})
	})
}

// forget lets Redis, if there is one, forget everything.
func (in *inbox) forget() {
	if in.redis != nil {
		in.redis.FlushAll()
	}
}

// do takes the message: f is called after the effect.
func (in *inbox) do(f func() error) (string, bool, error) {
	return sqljournal.Do(in.t.Context(), in.guard, in.message, nil, func(_ context.Context, tx *sql.Tx) (string, error) {
		in.calls++
		return "paid", errors.Join(take(tx, in.effect), f())
	})
}

func (in *inbox) take() (string, bool, error) { return in.do(func() error { return nil }) }

func (in *inbox) mustTake(replayed bool) {
	in.t.Helper()
	if v, again, err := in.take(); v != "paid" || again != replayed || err != nil {
		in.t.Errorf("got %q, replayed %v, %v, want paid, %v", v, again, err, replayed)
	}
	in.mustHaveEffects(1)
}

func (in *inbox) mustHaveEffects(want int) {
	in.t.Helper()
	mustHaveEffects(in.t, in.db, in.effect, want)
}

// mustBeRefused checks the reason of a refusal.
func mustBeRefused(t *testing.T, err, reason error, retryable bool) {
	t.Helper()
	var refused *once.Refused
	if !errors.As(err, &refused) || refused.Reason != reason || refused.Retryable != retryable {
		t.Errorf("got %v, want %v, retryable %v", err, reason, retryable)
	}
}

func TestDo(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(in *inbox, _ *sqljournal.Journal) {
		in.mustTake(false)
		in.mustTake(true)
		in.forget()
		in.mustTake(true)
		if in.calls != 1 {
			in.t.Errorf("%d calls, want 1", in.calls)
		}
	})
}

// A transaction that fails leaves nothing. Whether the message may be taken again, the error's mark decides.
func TestDoFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("the provider has refused")
	eachInbox(t, func(in *inbox, _ *sqljournal.Journal) {
		fails := func(err error) func() error { return func() error { return err } }
		if v, _, err := in.do(fails(once.NothingHappened(broken))); v != "" || !errors.Is(err, broken) {
			in.t.Errorf("got %q, %v", v, err)
		}
		in.mustHaveEffects(0)
		if _, _, err := in.do(fails(once.Final(broken))); !errors.Is(err, broken) {
			in.t.Errorf("got %v", err)
		}
		var stored *once.StoredError
		if _, replayed, err := in.take(); !replayed || !errors.As(err, &stored) {
			in.t.Errorf("after a final error: replayed %v, %v", replayed, err)
		}
		in.mustHaveEffects(0)
	})
}

// A failure that is stored, after its transaction was rolled back, is no run outside of the transaction.
func TestDoFinalIsInsideOfTheTransaction(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	events := make(chan once.Event, 1)
	in := newInbox(t, withEffects(t, d), "m", once.WithJournal(modes["transactional"](d, t)),
		once.WithObserver(func(_ context.Context, e once.Event) { events <- e }))
	if _, _, err := in.do(func() error { return once.Final(errors.New("declined")) }); err == nil {
		t.Error("no error")
	}
	if e := <-events; e.Outcome != once.Executed || e.Err != nil || !e.Failed {
		t.Errorf("%+v, want executed without an error", e)
	}
}

// What the database refuses has not happened, so the next call runs, also at most once. What f itself returns is stored:
// it may have had an effect elsewhere.
//
// fault: another transaction makes COMMIT or a statement fail with 40001. Expected: one effect, by the next call
func TestDoAtMostOnceRunsAgain(t *testing.T) {
	t.Parallel()
	broken := errors.New("the provider has refused")
	beside := "insert into payments select count(*) + 1 from payments"
	for name, c := range map[string]struct {
		f     func(tx *sql.Tx, db *sql.DB) error
		again bool
	}{
		"COMMIT fails": {func(tx *sql.Tx, db *sql.DB) error {
			return cmp.Or(exec(tx, beside), exec(serializable{db}, beside))
		}, true},
		"a statement fails": {func(tx *sql.Tx, db *sql.DB) error {
			return exec(tx, "update payments set id = 1 where id = 0")
		}, true},
		"a statement fails, and f knows more": {func(tx *sql.Tx, db *sql.DB) error {
			return once.Final(exec(tx, "update payments set id = 1 where id = 0"))
		}, false},
		"f fails": {func(*sql.Tx, *sql.DB) error { return broken }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := dbtest.PostgreSQL(t)
			db := withEffects(t, d)
			mustExec(t, db, "create table payments (id integer not null)")
			mustExec(t, db, "insert into payments values (0)")
			in := newInbox(t, db, "m", once.WithJournal(modes["transactional"](d, t)), once.WithAtMostOnce())
			calls := 0
			take := func() (string, bool, error) {
				return sqljournal.Do(t.Context(), in.guard, in.message, &sql.TxOptions{Isolation: sql.LevelSerializable},
					func(_ context.Context, tx *sql.Tx) (string, error) {
						if calls++; calls == 1 {
							if strings.HasPrefix(name, "a statement") { // it will meet a row that another has changed since
								if err := cmp.Or(exec(tx, "select count(*) from payments"), exec(db, "update payments set id = 0")); err != nil {
									return "", err
								}
							}
							if err := c.f(tx, db); err != nil {
								return "", err
							}
						}
						return "paid", take(tx, in.effect)
					})
			}
			if v, replayed, err := take(); v != "" || replayed || err == nil || name == "f fails" && err != broken {
				t.Errorf("the first: %q, %v, %v, want an error", v, replayed, err)
			}
			in.mustHaveEffects(0)
			v, replayed, err := take()
			if c.again {
				if v != "paid" || replayed || err != nil || calls != 2 {
					t.Errorf("the second: %q, %v, %v after %d calls, want it to run", v, replayed, err, calls)
				}
				in.mustHaveEffects(1)
				return
			}
			var stored *once.StoredError
			if !replayed || !errors.As(err, &stored) || calls != 1 {
				t.Errorf("the second: %q, %v, %v after %d calls, want the stored error", v, replayed, err, calls)
			}
			in.mustHaveEffects(0)
		})
	}
}

// fault: COMMIT never arrives
func TestDoAtMostOnceLosesCommit(t *testing.T) {
	t.Parallel()
	dbtest.EachServer(t, func(t *testing.T, d dbtest.Database) {
		proxy := dbtest.NewProxy(t, d.Server())
		in := newInbox(t, withEffects(t, d), "m", once.WithAtMostOnce(),
			once.WithJournal(modes["transactional"](d, t, dbtest.Through(proxy))))
		cut := proxy.CutBefore(dbtest.Statement("commit"))
		if _, _, err := in.take(); err == nil {
			t.Error("no error")
		}
		cut.Wait(t)
		in.mustHaveEffects(0)
		in.mustTake(false)
		if in.calls != 2 {
			t.Errorf("%d calls, want 2", in.calls)
		}
	})
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func exec(e execer, statement string) error {
	_, err := e.ExecContext(context.Background(), statement)
	return err
}

// serializable runs each statement in a SERIALIZABLE transaction.
type serializable struct{ db *sql.DB }

func (s serializable) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err != nil {
		return nil, err
	}
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return result, tx.Commit()
}

func TestDoPanics(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(in *inbox, _ *sqljournal.Journal) {
		mustPanic(in.t, "out of order", func() { _, _, _ = in.do(func() error { panic("out of order") }) })
		in.mustHaveEffects(0)
		_, _, err := in.take()
		mustBeRefused(in.t, err, once.ErrInFlight, true)
	})
}

// The value cannot be stored, so nothing is committed.
func TestDoValueCannotBeStored(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(in *inbox, _ *sqljournal.Journal) {
		_, _, err := sqljournal.Do(in.t.Context(), in.guard, in.message, nil, func(_ context.Context, tx *sql.Tx) (string, error) {
			return strings.Repeat("x", 1<<20), take(tx, in.effect)
		})
		mustFail(in.t, "a long value", err, journal.ErrTooLong)
		in.message.ID += ", another"
		_, _, err = sqljournal.Do(in.t.Context(), in.guard, in.message, nil, func(_ context.Context, tx *sql.Tx) (chan int, error) {
			return nil, take(tx, in.effect)
		})
		if err == nil || !strings.Contains(err.Error(), "cannot be encoded") {
			in.t.Errorf("a channel: %v", err)
		}
		in.mustHaveEffects(0)
	})
}

// Redis forgets, and the message is delivered again while its function runs: one of the two commits, and both get its
// value.
func TestDoTwiceAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.EachServer(t, func(t *testing.T, d dbtest.Database) {
		in := newInbox(t, withEffects(t, d), "m", once.WithJournal(modes["transactional"](d, t)))
		runs, second := make(chan struct{}), make(chan error)
		v, _, err := in.do(func() error {
			in.redis.FlushAll()
			go func() {
				v, _, err := sqljournal.Do(t.Context(), in.guard, in.message, nil, func(_ context.Context, tx *sql.Tx) (string, error) {
					close(runs)
					return "paid", take(tx, in.effect)
				})
				if err == nil && v != "paid" {
					err = errors.New(v)
				}
				second <- err
			}()
			<-runs
			return nil
		})
		if v != "paid" || err != nil {
			t.Errorf("the first: got %q, %v", v, err)
		}
		if err := <-second; err != nil {
			t.Errorf("the second: %v", err)
		}
		in.mustHaveEffects(1)
	})
}

// A function that was not called has had no effect, so its key is free in every mode.
//
// fault: BEGIN never arrives
func TestDoDoesNotBegin(t *testing.T) {
	t.Parallel()
	dbtest.EachServer(t, func(t *testing.T, d dbtest.Database) {
		db := withEffects(t, d)
		for mode, open := range modes {
			t.Run(mode, func(t *testing.T) {
				proxy := dbtest.NewProxy(t, d.Server())
				in := newInbox(t, db, mode, once.WithJournal(open(d, t, dbtest.Through(proxy))))
				cut := proxy.CutBefore(dbtest.Statement("begin"))
				if _, _, err := in.take(); err == nil || in.calls != 0 {
					t.Errorf("got %v after %d calls, want the connection's error", err, in.calls)
				}
				cut.Wait(t)
				in.mustTake(false)
			})
		}
	})
}

// fault: COMMIT never arrives, and then the reply to one is lost
func TestDoLosesCommit(t *testing.T) {
	t.Parallel()
	dbtest.EachServer(t, func(t *testing.T, d dbtest.Database) {
		proxy := dbtest.NewProxy(t, d.Server())
		in := newInbox(t, withEffects(t, d), "m", once.WithJournal(modes["transactional"](d, t, dbtest.Through(proxy))))
		cut := proxy.CutBefore(dbtest.Statement("commit"))
		if v, _, err := in.take(); v != "" || err == nil {
			t.Errorf("got %q, %v, want the connection's error", v, err)
		}
		cut.Wait(t)
		in.mustHaveEffects(0)
		lost := proxy.DropReply(dbtest.Statement("commit"))
		in.mustTake(false)
		lost.Wait(t)
		in.mustTake(true)
	})
}

// fault: COMMIT neither arrives nor fails for longer than Do waits
func TestDoDoesNotKnow(t *testing.T) {
	t.Parallel()
	dbtest.EachServer(t, func(t *testing.T, d dbtest.Database) {
		proxy := dbtest.NewProxy(t, d.Server())
		j := modes["transactional"](d, t, dbtest.Through(proxy))
		sqljournal.SetProbeTime(j, 100*time.Millisecond)
		in := newInbox(t, withEffects(t, d), "m", once.WithJournal(j))
		late := proxy.Delay(dbtest.Statement("commit"))
		_, _, err := in.take()
		mustBeRefused(t, err, once.ErrNotKnownYet, true)
		if errors.Is(err, once.ErrUnavailable) {
			t.Errorf("%v is ErrUnavailable, after which nothing ran", err)
		}
		late.Lift()
		eventually(t, "the commit", func() bool {
			var n int
			if err := in.db.QueryRow("select count(*) from effects").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n == 1
		})
		in.redis.FlushAll() // the lease of that call
		in.mustTake(true)
	})
}

func TestInTxInsideOfOnceDo(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(in *inbox, j *sqljournal.Journal) {
		_, _, err := once.Do(in.t.Context(), in.guard, in.message, func(ctx context.Context) (string, error) {
			return "paid", once.NothingHappened(j.InTx(ctx, nil, func(tx *sql.Tx) error { return take(tx, in.effect) }))
		})
		if err == nil || !strings.Contains(err.Error(), "sqljournal.Do") {
			in.t.Errorf("got %v, want an error that names sqljournal.Do", err)
		}
		in.mustHaveEffects(0)
		in.mustTake(false)
	})
}

func TestDoWithoutTheJournal(t *testing.T) {
	t.Parallel()
	in := newInbox(t, withEffects(t, dbtest.SQLite(t)), "m")
	if _, _, err := in.take(); !errors.Is(err, sqljournal.ErrOtherJournal) {
		t.Errorf("got %v, want ErrOtherJournal", err)
	}
	if in.calls != 0 {
		t.Error("the function was called")
	}
}
