package run_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// looked is an intent journal that has the row of another run.
type looked struct {
	journal.Journal
	look func(context.Context) (journal.Entry, error)

	mu    sync.Mutex
	looks []time.Time // guarded by mu
}

func (*looked) Namespace() string { return "test" }
func (*looked) IsIntent() bool    { return true }

func (*looked) Begin(context.Context, journal.Run) (journal.Entry, error) {
	return journal.Entry{State: journal.Running, Token: "another", Note: noteOf(lock.None("test"), 1)}, nil
}

func (l *looked) Look(ctx context.Context, _ string) (journal.Entry, error) {
	l.mu.Lock()
	l.looks = append(l.looks, time.Now())
	l.mu.Unlock()
	return l.look(ctx)
}

// A duplicate waits without Redis until the row has an outcome, or its time is over.
func TestWaitAlone(t *testing.T) {
	t.Parallel()
	note := noteOf(lock.None("test"), 1)
	entry := func(state journal.State) journal.Entry {
		return journal.Entry{State: state, Token: "another", Note: note}
	}
	const ends = 10 * time.Second
	for name, test := range map[string]struct {
		wait     time.Duration
		answerBy time.Duration
		look     func(ctx context.Context, at time.Duration) (journal.Entry, error)
		kind     run.Kind
		err      error
		from, to time.Duration // when Wait returns
	}{
		"done": {time.Minute, 0, func(_ context.Context, at time.Duration) (journal.Entry, error) {
			if at < ends {
				return entry(journal.Running), nil
			}
			return entry(journal.Done), nil
		}, run.NotKept, nil, ends, ends + time.Second},
		"unfinished": {time.Minute, 0, func(_ context.Context, at time.Duration) (journal.Entry, error) {
			return entry(journal.Unfinished), nil
		}, run.UnknownYet, nil, 0, 20 * time.Millisecond},
		"freed": {time.Minute, time.Hour, func(_ context.Context, at time.Duration) (journal.Entry, error) {
			if at < ends {
				return entry(journal.Running), nil
			}
			return journal.Entry{}, nil
		}, run.NoRecord, nil, ends, ends + time.Second},
		"runs on": {10 * time.Minute, 0, func(context.Context, time.Duration) (journal.Entry, error) {
			return entry(journal.Running), nil
		}, run.InFlight, nil, 10 * time.Minute, 10 * time.Minute},
		"runs on, and an answer is due later": {10 * time.Minute, time.Hour, func(context.Context, time.Duration) (journal.Entry, error) {
			return entry(journal.Running), nil
		}, run.InFlight, nil, 10 * time.Minute, 10 * time.Minute},
		"must have its answer": {10 * time.Minute, time.Minute, func(context.Context, time.Duration) (journal.Entry, error) {
			return entry(journal.Running), nil
		}, run.InFlight, nil, time.Minute, time.Minute},
		"no answer": {time.Minute, 0, func(context.Context, time.Duration) (journal.Entry, error) {
			return entry(journal.Done), errDown
		}, run.InFlight, errDown, time.Minute, time.Minute},
		"no answer, and then one": {time.Minute, 0, func(_ context.Context, at time.Duration) (journal.Entry, error) {
			if at < ends {
				return journal.Entry{}, errDown
			}
			return entry(journal.Done), nil
		}, run.NotKept, nil, ends, ends + time.Second},
		"the last answer takes too long": {time.Second, 0, func(ctx context.Context, at time.Duration) (journal.Entry, error) {
			<-ctx.Done()
			return entry(journal.Done), ctx.Err()
		}, run.InFlight, nil, time.Second, time.Second},
		"does not wait": {0, 0, nil, run.InFlight, nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				j := &looked{look: func(ctx context.Context) (journal.Entry, error) { return test.look(ctx, time.Since(start)) }}
				locker := lock.None("test")
				g := run.New("run", locker, run.Policy{
					Retention: time.Hour, MaxDuration: time.Minute, MaxWaiters: 1, Wait: test.wait, Journal: j,
				})
				req := request(1)
				inFlight := g.Begin(t.Context(), req)
				want(t, inFlight, run.InFlight, run.OutcomeInFlight)
				if test.answerBy > 0 {
					req.AnswerBy = start.Add(test.answerBy)
				}
				result := g.Wait(t.Context(), req, inFlight)
				if result.Kind != test.kind || test.kind == run.InFlight && (result.Err == nil) != (test.err == nil) || test.err != nil && !errors.Is(result.Err, test.err) {
					t.Errorf("%+v, want %v, %v", result, test.kind, test.err)
				}
				if waits := !req.Phases.Wait.Start.IsZero(); waits != (test.wait > 0) {
					t.Errorf("%+v", req.Phases)
				}
				took := time.Since(start)
				if took < test.from || took > test.to || req.Phases.Wait.Duration != took {
					t.Errorf("it took %v, and says %+v; want %v to %v", took, req.Phases.Wait, test.from, test.to)
				}
				if inMinutes := int(took / time.Minute); inMinutes > 0 && (len(j.looks) < 60*inMinutes || len(j.looks) > 240*inMinutes) {
					t.Errorf("%d looks in %v", len(j.looks), took)
				}
				if len(j.looks) > 2 && j.looks[2].Sub(start) > (20+40+80)*time.Millisecond {
					t.Errorf("the third look was after %v", j.looks[2].Sub(start))
				}
				if err := locker.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// No more than MaxWaiters wait at the same time, and for one key no more than a tenth of them. The others are told so at
// once.
//
// fault: one client with many duplicates of its own key, WithWait
func TestMaxWaiters(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		most, ofOneKey int
	}{
		"1": {1, 1}, "2": {2, 1}, "19": {19, 1}, "20": {20, 2}, "1000": {1000, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := &looked{look: func(context.Context) (journal.Entry, error) { return journal.Entry{State: journal.Running}, nil }}
				locker := lock.None("test")
				g := run.New("run", locker, run.Policy{
					Retention: time.Hour, MaxDuration: time.Minute, MaxWaiters: test.most, Wait: time.Minute, Journal: j,
				})
				inFlight := g.Begin(t.Context(), request(1))
				var waiters sync.WaitGroup
				wait := func(key string) {
					waiters.Go(func() {
						req := request(1)
						req.StorageKey = key
						if result := g.Wait(t.Context(), req, inFlight); result.Err != nil {
							t.Errorf("%s: %+v", key, result)
						}
					})
				}
				wantRefused := func(key string) {
					t.Helper()
					synctest.Wait()
					start, req := time.Now(), request(1)
					req.StorageKey = key
					result := g.Wait(t.Context(), req, inFlight)
					want(t, result, run.InFlight, run.OutcomeInFlight)
					if result.Err == nil || !strings.Contains(result.Err.Error(), "WithWait") || time.Since(start) != 0 {
						t.Errorf("%s: %v, after %v", key, result.Err, time.Since(start))
					}
				}
				for range 2 { // those that have waited make room
					for range test.ofOneKey {
						wait("one client's")
					}
					wantRefused("one client's")
					for n := range test.most - test.ofOneKey {
						wait(fmt.Sprint("another's ", n))
					}
					wantRefused("a last one's")
					waiters.Wait()
				}
				if err := locker.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A duplicate waits for what the key in Redis holds next.
func TestWait(t *testing.T) {
	t.Parallel()
	row := func(state journal.State) journal.Journal {
		return &standing{entry: journal.Entry{State: state, Token: "another", Note: noteOf(lock.None("test"), 1)}}
	}
	for name, test := range map[string]struct {
		change  func(w begun, lease *lock.Lease)
		journal journal.Journal
		kind    run.Kind
		err     error
	}{
		"released":       {func(w begun, l *lock.Lease) { _ = l.Release(w.Context()) }, nil, run.NoRecord, nil},
		"released, done": {func(w begun, l *lock.Lease) { _ = l.Release(w.Context()) }, row(journal.Done), run.NotKept, nil},
		"abandoned, done": {func(w begun, l *lock.Lease) {
			l.Abandon()
			w.mini.Elapse(w.T, time.Minute)
		}, row(journal.Done), run.NotKept, nil},
		"no record":         {func(w begun, l *lock.Lease) { _ = l.Settle(w.Context(), []byte("x"), time.Hour) }, nil, run.Unreadable, nil},
		"no record, done":   {func(w begun, l *lock.Lease) { _ = l.Settle(w.Context(), []byte("x"), time.Hour) }, row(journal.Done), run.Unreadable, nil},
		"another program's": {func(w begun, _ *lock.Lease) { w.client.Set(w.Context(), w.locker.StorageKey("k"), "x", 0) }, nil, run.Unreadable, lock.ErrForeign},
		"closed":            {func(w begun, l *lock.Lease) { l.Abandon(); _ = w.locker.Close(w.Context()) }, nil, run.Unavailable, lock.ErrClosed},
		"pending": {func(w begun, l *lock.Lease) {
			w.hook.set(refuse("evalsha"), nil)
			_ = l.Settle(w.Context(), []byte("x"), time.Hour)
		}, nil, run.Unconfirmed, lock.ErrSettled},
		"no Redis": {func(w begun, _ *lock.Lease) { w.hook.set(func(string) error { return errRefused }, nil) }, nil, run.InFlight, errRefused},
		"held":     {func(begun, *lock.Lease) {}, nil, run.InFlight, nil},
	} {
		for hold := range map[time.Duration]bool{0: true, time.Hour: true} {
			t.Run(name+", hold "+hold.String(), func(t *testing.T) {
				t.Parallel()
				mini := redistest.Mini(t)
				client, hook := mini.Client(t), &commands{}
				client.AddHook(hook)
				g, locker := newGuardOn(t, client, func(p *run.Policy) {
					if p.Wait, p.Journal = 20*time.Second, test.journal; test.kind == run.InFlight || test.kind == run.Unconfirmed {
						p.Wait = 2 * time.Second // a poll takes less, also under load
					}
				})
				w := begun{t, mini, mini.Client(t), hook, locker}
				lease := w.claim(hold)
				inFlight := g.Begin(t.Context(), request(1))
				want(t, inFlight, run.InFlight, run.OutcomeInFlight)
				test.change(w, lease)
				req := request(1)
				result := g.Wait(t.Context(), req, inFlight)
				if result.Kind != test.kind || test.err != nil && !errors.Is(result.Err, test.err) || req.Phases.Wait.Start.IsZero() {
					t.Errorf("%+v, %+v; want %v, %v", result, req.Phases, test.kind, test.err)
				}
				if test.kind == run.InFlight && (result.RetryAfter < time.Second || (result.Err == nil) != (test.err == nil)) {
					t.Errorf("may be repeated after %v, %v", result.RetryAfter, result.Err)
				}
				hook.end(t, locker)
			})
		}
	}
}

// A duplicate waits for a run that only the journal has, or whose lease has ended before it, as it does without Redis.
//
// fault: Redis loses the claim of a run, or its process dies, and an intent journal has its row. Expected: a waiter waits
func TestWaitForARow(t *testing.T) {
	t.Parallel()
	for name, claimed := range map[string]bool{"the journal alone has it": false, "the lease ends while it waits": true} {
		for state, kind := range map[journal.State]run.Kind{
			journal.Absent: run.NoRecord, journal.Done: run.NotKept, journal.Unfinished: run.UnknownYet, journal.Running: run.InFlight,
		} {
			t.Run(fmt.Sprintf("%s, then %v", name, state), func(t *testing.T) {
				t.Parallel()
				const looks = 3
				j := &looked{}
				row := journal.Entry{State: journal.Running, Token: "another", Note: noteOf(lock.None("test"), 1)}
				j.look = func(context.Context) (journal.Entry, error) {
					entry := row
					if len(j.looks) >= looks {
						entry.State = state
					}
					if entry.State == journal.Absent {
						entry = journal.Entry{}
					}
					return entry, nil
				}
				mini := redistest.Mini(t)
				g, locker := newGuardOn(t, mini.Client(t), func(p *run.Policy) {
					if p.Journal, p.Wait = j, 20*time.Second; state == journal.Running {
						p.Wait = 500 * time.Millisecond
					}
				})
				w := begun{t, mini, mini.Client(t), nil, locker}
				var lease *lock.Lease
				if claimed {
					lease = w.claim(0)
				}
				req := request(1)
				inFlight := g.Begin(t.Context(), req)
				want(t, inFlight, run.InFlight, run.OutcomeInFlight)
				if claimed {
					_ = lease.Release(t.Context())
				}
				result := g.Wait(t.Context(), req, inFlight)
				if result.Kind != kind || req.Phases.Wait.Start.IsZero() || kind != run.InFlight && len(j.looks) < looks {
					t.Errorf("%+v after %d looks, want %v", result, len(j.looks), kind)
				}
				if kind == run.InFlight && (result.RetryAfter < time.Second || req.Phases.Wait.Duration < 500*time.Millisecond) {
					t.Errorf("may be repeated after %v, waited for %+v", result.RetryAfter, req.Phases.Wait)
				}
			})
		}
	}
}
