package sqljournal_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/once"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// TestDoAtMostOnceRunsAgain for MySQL and MariaDB.
//
// fault: MySQL: another transaction makes a statement fail with 1213, 1020 or 1205. Expected: one effect, by the next call, after
// the first two, unless f says more; the error of a lock timeout is stored as any other
func TestDoConflictsInMySQL(t *testing.T) {
	t.Parallel()
	changed := func(t *testing.T, db *sql.DB, tx *sql.Tx) error {
		var n int
		return cmp.Or(tx.QueryRow("select n from locks where id = 1").Scan(&n),
			exec(db, "update locks set n = n + 1 where id = 1"), exec(tx, "update locks set n = n + 1 where id = 1"))
	}
	timeout := func(t *testing.T, db *sql.DB, tx *sql.Tx) error {
		other, err := db.Begin()
		if err != nil {
			return err
		}
		defer rollBack(t, other)
		return cmp.Or(exec(other, "update locks set n = 1"), exec(tx, "update locks set n = 2"))
	}
	for name, c := range map[string]struct {
		conflict func(*testing.T, *sql.DB, *sql.Tx) error
		number   string
		mark     func(error) error
		again    bool
	}{
		"a deadlock":                               {deadlock, "1213", nil, true},
		"a deadlock, and f knows more":             {deadlock, "1213", once.Final, false},
		"a row that has changed":                   {changed, "1020", nil, true},
		"a row that has changed, and f knows more": {changed, "1020", once.Final, false},
		"a lock timeout":                           {timeout, "1205", nil, false},
		"a lock timeout, and f knows that":         {timeout, "1205", once.NothingHappened, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := dbtest.MySQL(t)
			settings := []dbtest.Setting{dbtest.Param("innodb_lock_wait_timeout", "1")}
			if c.number == "1020" {
				if !d.Server().IsMariaDB() {
					t.Skip("left out: MySQL has no innodb_snapshot_isolation")
				}
				settings = append(settings, dbtest.Param("innodb_snapshot_isolation", "1"))
			}
			db := withEffects(t, d)
			withLocks(t, db)
			in := newInbox(t, db, "m", once.WithJournal(modes["transactional"](d, t, settings...)), once.WithAtMostOnce())
			take := func() (string, bool, error) {
				opts := &sql.TxOptions{Isolation: sql.LevelRepeatableRead}
				return sqljournal.Do(t.Context(), in.guard, in.message, opts, func(_ context.Context, tx *sql.Tx) (string, error) {
					if in.calls++; in.calls > 1 {
						return "paid", take(tx, in.effect)
					}
					err := c.conflict(t, db, tx)
					if err == nil || !strings.Contains(err.Error(), c.number) {
						t.Errorf("got %v, want %s", err, c.number)
					}
					if c.mark != nil {
						err = c.mark(err)
					}
					return "", err
				})
			}
			if v, replayed, err := take(); v != "" || replayed || err == nil {
				t.Errorf("the first: %q, %v, %v, want an error", v, replayed, err)
			}
			in.mustHaveEffects(0)
			if c.again {
				if v, replayed, err := take(); v != "paid" || replayed || err != nil {
					t.Errorf("the second: %q, %v, %v, want it to run", v, replayed, err)
				}
				in.mustHaveEffects(1)
				return
			}
			var stored *once.StoredError
			if _, replayed, err := take(); !replayed || !errors.As(err, &stored) || in.calls != 1 {
				t.Errorf("the second: %v, %v after %d calls, want the stored error", replayed, err, in.calls)
			}
			in.mustHaveEffects(0)
		})
	}
}

func rollBack(t *testing.T, tx *sql.Tx) {
	t.Helper()
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
}
