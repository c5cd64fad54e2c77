package sqljournal_test

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// Two handlers of one key run at once, with no lock at all. Whatever the isolation level is, and whatever they do to each
// other, there is one effect, and the loser answers with the winner's response.
func TestTwoHandlersAtOnce(t *testing.T) {
	t.Parallel()
	handlers := map[string]func(tx *sql.Tx, run journal.Run) error{
		"insert": func(tx *sql.Tx, run journal.Run) error { return take(tx, run) },
		"unique key": func(tx *sql.Tx, run journal.Run) error {
			return cmp.Or(exec(tx, "insert into orders (id) values ('"+run.Key+"')"), take(tx, run))
		},
		"balance": func(tx *sql.Tx, run journal.Run) error {
			return cmp.Or(exec(tx, "update accounts set balance = balance - 1"), take(tx, run))
		},
	}
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		db := withEffects(t, d)
		mustExec(t, db, "create table orders (id varchar(200) primary key)")
		mustExec(t, db, "create table accounts (balance integer not null)")
		mustExec(t, db, "insert into accounts values (0)")
		levels := []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
		if d.Server == nil {
			levels = []sql.IsolationLevel{sql.LevelDefault}
		}
		j := modes["transactional"](d, t)
		for name, handler := range handlers {
			for _, level := range levels {
				t.Run(fmt.Sprint(name, " ", level), func(t *testing.T) {
					for range 5 {
						testTwoHandlers(t, d, j, db, level, handler)
					}
				})
			}
		}
	})
}

func testTwoHandlers(
	t *testing.T, d dbtest.Database, j *sqljournal.Journal, db *sql.DB, level sql.IsolationLevel,
	handler func(*sql.Tx, journal.Run) error,
) {
	key := newRun(time.Hour)
	var begun, ended sync.WaitGroup
	begun.Add(2)
	var runs [2]*fakeExecution
	var errs [2]error
	for i, run := range []journal.Run{begin(t, j, retried(key)), begin(t, j, retried(key))} {
		var ctx context.Context
		runs[i], ctx = protected(j, run, fmt.Sprint("response ", i))
		meet := sync.OnceFunc(func() { // both transactions have their snapshot before one of them writes
			if begun.Done(); d.Server != nil {
				begun.Wait()
			}
		})
		ended.Go(func() {
			for errs[i] = context.Canceled; errs[i] != nil && errs[i] != journal.ErrAnswered; { // a failed transaction may simply be tried again
				errs[i] = j.InTx(ctx, &sql.TxOptions{Isolation: level}, func(tx *sql.Tx) error {
					var n int
					if err := tx.QueryRow("select count(*) from accounts").Scan(&n); err != nil {
						return err
					}
					meet()
					return handler(tx, run)
				})
			}
		})
	}
	ended.Wait()
	winner := 0
	if errs[0] != nil {
		winner = 1
	}
	want := fmt.Sprint("response ", winner)
	mustFail(t, "the winner", errs[winner], nil)
	mustFail(t, "the loser", errs[1-winner], journal.ErrAnswered)
	if got := string(runs[1-winner].answer); got != want {
		t.Errorf("the loser answers with %q, want %q", got, want)
	}
	mustHaveEffects(t, db, key, 1)
	mustLook(t, j, key.Key, journal.Done, want)
}

// Many Begins of one key at once: one run begins, and the others see it, also where the default isolation level is not
// READ COMMITTED.
func TestManyBegin(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		for _, level := range []string{"read committed", "repeatable read", "serializable"} {
			j, db := modes["intent"](d, t, d.Isolation(t, level)), d.Open(t)
			for i := range 10 {
				key := newRun(time.Hour)
				if i%2 == 1 {
					othersExpired.put(t, d, db, key)
				}
				var mu sync.Mutex
				states := map[journal.State]int{}
				var callers sync.WaitGroup
				for range 16 {
					callers.Go(func() {
						e, err := j.Begin(context.Background(), retried(key))
						mustFail(t, "Begin", err, nil)
						mu.Lock()
						defer mu.Unlock()
						states[e.State]++
					})
				}
				callers.Wait()
				if states[journal.Begun] != 1 || states[journal.Running] != 15 {
					t.Errorf("got %v, want one begun and 15 running", states)
				}
			}
		}
	})
}
