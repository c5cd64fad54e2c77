package run_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// standing is an intent journal with one row, which Begin, End and Look return.
type standing struct {
	journal.Journal
	entry   journal.Entry
	takes   time.Duration // Begin does
	lookErr error

	mu    sync.Mutex // guards the fields below
	fails bool       // End does
	ends  int        // that did not fail
}

func (*standing) Namespace() string { return "test" }
func (*standing) IsIntent() bool    { return true }

func (s *standing) Begin(_ context.Context, run journal.Run) (journal.Entry, error) {
	time.Sleep(s.takes)
	if s.entry.Token == "" {
		return journal.Entry{State: journal.Begun, Token: run.Token}, nil
	}
	return s.entry, nil
}

func (s *standing) Look(context.Context, string) (journal.Entry, error) { return s.entry, s.lookErr }

func (s *standing) End(_ context.Context, r journal.Run, encoded []byte, keep time.Duration) (journal.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.fails:
		return journal.Entry{}, errDown
	case r.Resolved && encoded == nil:
		s.ends++
		return journal.Entry{}, nil
	case r.Resolved:
		s.ends++
		return journal.Entry{State: journal.Done, Token: r.Token, Record: encoded, Left: keep}, nil
	}
	return s.entry, nil
}

// noteOf returns the note of a request with the sum n.
func noteOf(locker *lock.Locker, n byte) []byte {
	note := record.Note{Fingerprint: request(n).Fingerprints[0], Journaled: true}
	return new(record.Codec).EncodeNote(nil, locker.StorageKey("k"), note)
}

// alone runs test with a Guard without Redis, on a journal with that row.
func alone(t *testing.T, s *standing, test func(t *testing.T, g *run.Guard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		locker := lock.None("test")
		test(t, run.New("run", locker, run.Policy{Retention: time.Hour, MaxDuration: time.Minute, Journal: s}))
		if err := locker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// When a duplicate of a run in the journal may be repeated depends on the age of the run's row.
func TestRetryAfterOfARow(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		state journal.State
		age   time.Duration
		kind  run.Kind
		after time.Duration
	}{
		"unfinished, new":                  {journal.Unfinished, time.Second, run.UnknownYet, 30 * time.Second},
		"unfinished, a minute":             {journal.Unfinished, time.Minute, run.UnknownYet, time.Minute},
		"unfinished, almost the retention": {journal.Unfinished, time.Hour - 1, run.UnknownYet, 5 * time.Minute},
		"unfinished, the retention":        {journal.Unfinished, time.Hour, run.Unknown, 0},
		"running, new":                     {journal.Running, 0, run.InFlight, time.Second},
		"running, five seconds":            {journal.Running, 5 * time.Second, run.InFlight, 5 * time.Second},
		"running, longer than a lease":     {journal.Running, time.Minute, run.InFlight, lock.None("test").TTL()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &standing{entry: journal.Entry{State: test.state, Token: "another", Age: test.age, Note: noteOf(lock.None("test"), 1)}}
			alone(t, s, func(t *testing.T, g *run.Guard) {
				result := g.Begin(t.Context(), request(1))
				if result.Kind != test.kind || result.RetryAfter != test.after {
					t.Errorf("%+v, want %v after %v", result, test.kind, test.after)
				}
			})
		})
	}
}

// A record without a fingerprint has that of its row's note. Both must be readable.
func TestNoteAndRecordOfARow(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*journal.Entry)
		input  byte
		kind   run.Kind
	}{
		"the same input":    {func(*journal.Entry) {}, 1, run.Stored},
		"another input":     {func(*journal.Entry) {}, 2, run.Reused},
		"no record":         {func(e *journal.Entry) { e.Record = nil }, 1, run.NotKept},
		"a broken record":   {func(e *journal.Entry) { e.Record[len(e.Record)-1]++ }, 1, run.Unreadable},
		"a broken note":     {func(e *journal.Entry) { e.Note = e.Note[1:] }, 1, run.Unreadable},
		"neither of either": {func(e *journal.Entry) { e.Note, e.Record = nil, nil }, 1, run.NotKept},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &standing{entry: journal.Entry{State: journal.Done, Token: "another", Note: noteOf(lock.None("test"), 1)}}
			alone(t, s, func(t *testing.T, g *run.Guard) {
				s.entry.Record = recordWithoutFingerprint(t, g, lock.None("test").StorageKey("k"))
				test.change(&s.entry)
				result := g.Begin(t.Context(), request(test.input))
				if result.Kind != test.kind || result.Kind == run.Stored && string(result.Record.Body) != "hb" {
					t.Errorf("%+v, want %v", result, test.kind)
				}
				if knows := !result.First.Ended.IsZero(); knows != (test.kind == run.Reused) || result.First.Running {
					t.Errorf("of the other run: %+v", result.First)
				}
			})
		})
	}
}

func recordWithoutFingerprint(t *testing.T, g *run.Guard, key string) []byte {
	t.Helper()
	encoded, err := g.Record(key, &run.Left{Head: []byte("h"), Body: []byte("b")})
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// Record wants the key as it stands in Redis.
func TestRecordOfAnotherKey(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t)
	for _, key := range []string{"k", lock.None("another").StorageKey("k")} {
		if encoded, err := g.Record(key, new(run.Left)); encoded != nil || !errors.Is(err, lock.ErrNotStorageKey) {
			t.Errorf("%q: %x, %v", key, encoded, err)
		}
	}
}

// A late End may find that a sweeper has stored a record for the run, without a fingerprint. Redis gets it with the one of
// the note, or nothing if the note is not readable.
func TestLateEndFindsARecord(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		isBroken bool
		state    lock.State
	}{"": {false, lock.Settled}, "with a broken note": {true, lock.Free}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &standing{fails: true}
			g, locker := newGuard(t, func(p *run.Policy) { p.Journal = s })
			if err := conclude(t, g, &product{keeps: true}).Err; !errors.Is(err, lock.ErrPending) {
				t.Errorf("%v, want that it is pending", err)
			}
			note := noteOf(locker, 1)
			if test.isBroken {
				note = note[1:]
			}
			s.mu.Lock()
			s.fails, s.entry = false, journal.Entry{State: journal.Done, Token: "sweeper", Note: note, Left: time.Hour}
			s.entry.Record = recordWithoutFingerprint(t, g, locker.StorageKey("k"))
			s.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			claim, err := locker.Wait(ctx, "k")
			if err != nil || claim.State != test.state {
				t.Fatalf("%v, %v; want %v", claim.State, err, test.state)
			}
			if test.isBroken {
				return
			}
			rec, err := new(record.Codec).Decode(locker.StorageKey("k"), claim.Value)
			if err != nil || rec.Fingerprint != request(1).Fingerprints[0] || string(rec.Body) != "hb" {
				t.Errorf("%+v, %v", rec, err)
			}
		})
	}
}

// What an operator may say of a run depends on its row and on its claim.
func TestResolveByRowAndClaim(t *testing.T) {
	t.Parallel()
	response := &run.Left{Head: []byte("h"), Body: []byte("b")}
	for name, test := range map[string]struct {
		state   journal.State
		isOurs  bool // the live claim in Redis
		record  []byte
		payload *run.Left
		err     error
	}{
		"unfinished, its lease lives, a response":    {journal.Unfinished, true, nil, response, lock.ErrLive},
		"unfinished, its lease lives, nothing":       {journal.Unfinished, true, nil, nil, lock.ErrLive},
		"unfinished, another claim, a response":      {journal.Unfinished, false, nil, response, nil},
		"unfinished, another claim, nothing":         {journal.Unfinished, false, nil, nil, nil},
		"done without a record, a response":          {journal.Done, false, nil, response, nil},
		"done without a record, and its lease lives": {journal.Done, true, nil, response, nil},
		"done without a record, nothing":             {journal.Done, false, nil, nil, run.ErrSettled},
		"done with a record, a response":             {journal.Done, false, []byte("record"), response, run.ErrSettled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &standing{}
			g, locker := newGuard(t, func(p *run.Policy) { p.Journal = s })
			claim, err := locker.Claim(t.Context(), "k", noteOf(locker, 1), 0)
			if err != nil {
				t.Fatal(err)
			}
			token := "another"
			if test.isOurs {
				token = claim.Lease.Token()
			}
			s.entry = journal.Entry{State: test.state, Token: token, Note: noteOf(locker, 1), Record: test.record}
			err = g.Resolve(t.Context(), locker.StorageKey("k"), token, test.payload)
			if !errors.Is(err, test.err) || (s.ends == 1) != (test.err == nil) {
				t.Errorf("%v after %d Ends, want %v", err, s.ends, test.err)
			}
			if err := claim.Lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A context that nobody has asked before says afterwards, too, why it ended.
func TestContextAfterTheRun(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]error{time.Second: context.Canceled, time.Minute: context.DeadlineExceeded} {
		alone(t, &standing{}, func(t *testing.T, g *run.Guard) {
			r, ctx := begin(t, g, &product{})
			time.Sleep(took)
			r.CutOff()
			r.Conclude(run.Ending{How: run.Whole})
			if ctx.Err() != want || context.Cause(ctx) != want {
				t.Errorf("after %v: %v, %v; want %v", took, ctx.Err(), context.Cause(ctx), want)
			}
		})
	}
}

// The hold of a claim is the retention, and has the same limit.
func TestLongestRetention(t *testing.T) {
	t.Parallel()
	for retention, fits := range map[time.Duration]bool{lock.MaxHold: true, lock.MaxHold + 1: false} {
		func() {
			defer func() {
				if panics := recover() != nil; panics == fits {
					t.Errorf("%v: panics %v", retention, panics)
				}
			}()
			newGuard(t, func(p *run.Policy) { p.Retention, p.AtMostOnce = retention, true })
		}()
	}
}
