package run_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// fault: Redis forgets a run, a second one begins, and the first one's record is kept for less time than the second one
// may take. Expected: a transactional journal keeps its row for longer.
func TestRowStandsAsLongAsARunMayCommit(t *testing.T) {
	t.Parallel()
	const limit = 10 * time.Second
	for name, test := range map[string]struct {
		intent            bool
		retention, retain time.Duration
		keep              time.Duration
	}{
		"transactional":                  {false, time.Hour, 0, time.Hour},
		"transactional, Retain":          {false, time.Hour, 2 * time.Second, limit + time.Minute},
		"transactional, long Retain":     {false, time.Hour, 2 * time.Hour, 2 * time.Hour},
		"transactional, short retention": {false, time.Second, 0, limit + time.Minute},
		"intent, Retain":                 {true, time.Hour, 2 * time.Second, 2 * time.Second},
	} {
		for how, inTx := range map[string]bool{"in a transaction": true, "outside of it": false} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				j := &fakeJournal{intent: test.intent}
				g, _ := newGuardOn(t, redistest.Mini(t).Client(t), func(p *run.Policy) {
					p.Journal, p.Retention, p.MaxDuration = j, test.retention, limit
				})
				r, ctx := begin(t, g, &product{body: "b", keeps: true})
				r.Control().Retain(test.retain)
				var keep time.Duration
				if inTx {
					err := journal.Transact(ctx, func(s seal) error {
						c, err := s()
						keep = c.Keep
						return err
					}, nil)
					if err != nil {
						t.Error(err)
					}
				}
				r.CutOff()
				want(t, r.Conclude(run.Ending{How: run.Whole}), run.Own, run.OutcomeExecuted)
				if !inTx {
					keep = j.ended[0].Left
				}
				if keep != test.keep {
					t.Errorf("kept for %v, want %v", keep, test.keep)
				}
			})
		}
	}
}

// fault: the process is paused until its run's limit has passed, and its context is not done yet.
// Expected: the transaction cannot be sealed any more.
func TestSealAfterTheLimit(t *testing.T) {
	t.Parallel()
	inBubble(t, &outage{}, time.Hour, func(t *testing.T, g *run.Guard, _ *lock.Locker) {
		for late, wantErr := range map[time.Duration]error{time.Minute - 1: nil, time.Minute: context.DeadlineExceeded} {
			r, ctx := begin(t, g, &product{body: "b"})
			time.Sleep(late)
			synctest.Wait()
			err := journal.Transact(ctx, func(s seal) error { _, err := s(); return err },
				func(journal.Run, bool) (journal.Entry, error) { return journal.Entry{}, nil })
			if !errors.Is(err, wantErr) {
				t.Errorf("after %v: %v, want %v", late, err, wantErr)
			}
			r.CutOff()
			r.Conclude(run.Ending{How: run.Whole})
		}
	})
}
