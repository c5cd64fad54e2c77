package sqljournal_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// fault: the reply to Begin is lost. Asked again with the same token, it answers the same.
func TestReplyToBeginIsLost(t *testing.T) {
	t.Parallel()
	dbtest.EachServer(t, func(t *testing.T, d dbtest.Database) {
		f := newFaulty(t, d, "intent")
		run := newRun(time.Hour)
		lost := f.proxy.DropReply(dbtest.Statement("insert into onceguard_journal (key, token, state, note"))
		if _, err := f.j.Begin(t.Context(), run); err == nil {
			t.Error("Begin has not failed")
		}
		lost.Wait(t)
		e, err := f.j.Begin(t.Context(), run)
		mustBe(t, "Begin again", e, err, journal.Begun, "")
		e, err = f.j.Begin(t.Context(), retried(run))
		mustBe(t, "Begin of another", e, err, journal.Running, "")
	})
}

// fault: the reply to End is lost. Asked again, it answers what it has stored.
func TestReplyToEndIsLost(t *testing.T) {
	t.Parallel()
	eachServerMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		f := newFaulty(t, d, mode)
		lost := f.proxy.DropReply(completes(mode))
		if _, err := f.j.End(t.Context(), f.run, []byte("stored"), time.Hour); err == nil {
			t.Error("End has not failed")
		}
		lost.Wait(t)
		e, err := f.j.End(t.Context(), f.run, []byte("stored"), time.Hour)
		mustBe(t, "End again", e, err, journal.Done, "stored")
		if e.Token != f.run.Token {
			t.Errorf("it is said to be another's")
		}
	})
}

// Begin does not wait for the transaction of the run that it duplicates.
func TestBeginDoesNotWait(t *testing.T) {
	t.Parallel()
	eachServerMode(t, func(t *testing.T, d dbtest.Database, mode string) {
		f, errHandler := newFaulty(t, d, mode), errors.New("the handler's")
		err := f.j.InTx(f.ctx, nil, func(tx *sql.Tx) error {
			if err := f.j.Complete(t.Context(), tx, journal.Commit{Run: f.run, Record: []byte("open"), Keep: time.Hour}); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			want := journal.Absent
			if mode == "intent" {
				want = journal.Running
			}
			e, err := f.j.Begin(ctx, retried(f.run))
			mustBe(t, "Begin", e, err, want, "")
			return errHandler
		})
		mustFail(t, "InTx", err, errHandler)
	})
}

// Many Begins of one key at once: one run begins, and the others see it, also where the default isolation level is not
// READ COMMITTED.
func TestManyBegin(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		for _, level := range []string{"read committed", "repeatable read", "serializable"} {
			j, db := modes["intent"](d, t, d.Isolation(t, level)), d.Open(t)
			for _, before := range []standing{nothing, othersExpired} {
				for range 5 {
					key := newRun(time.Hour)
					before.put(t, d, db, key)
					testManyBegin(t, j, key)
				}
			}
		}
	})
}

func testManyBegin(t *testing.T, j *sqljournal.Journal, key journal.Run) {
	var mu sync.Mutex
	states := map[journal.State]int{}
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			e, err := j.Begin(context.Background(), retried(key))
			if err != nil {
				t.Errorf("Begin: %v", err)
			}
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
