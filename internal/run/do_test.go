package run_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// steal gives the key "k" to another claim, of the same input.
func steal(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	thief := lock.New(client, "test", lock.WithOpTimeout(30*time.Second))
	if err := client.Del(t.Context(), thief.StorageKey("k")).Err(); err != nil {
		t.Fatal(err)
	}
	if claim, err := thief.Claim(t.Context(), "k", noteOf(thief, 1), 0); err != nil || claim.State != lock.Granted {
		t.Fatal(claim, err)
	}
	t.Cleanup(func() { _ = thief.Close(context.Background()) })
}

// panicking is a journal whose End panics.
type panicking struct{ fakeJournal }

func (*panicking) End(context.Context, journal.Run, []byte, time.Duration) (journal.Entry, error) {
	panic("end")
}

// operating is what an operation of TestDo has.
type operating struct {
	*testing.T
	*run.Run
	ctx    context.Context
	client redis.UniversalClient
}

// overtake lets a transaction of the operation fail, because the journal has that entry of another run.
func overtake(ctx context.Context, entry journal.Entry) error {
	return journal.Transact(ctx,
		func(func() (journal.Commit, error)) error { return errors.New("unique violation") },
		func(journal.Run, bool) (journal.Entry, error) { return entry, nil },
	)
}

// theirs is the entry of another run, with the same input, that the journal has.
func theirs() journal.Entry {
	rec := &record.Record{Fingerprint: request(1).Fingerprints[0], Completed: time.Now(), Body: []byte("theirs")}
	encoded := new(record.Codec).Append(nil, lock.None("test").StorageKey("k"), rec)
	return journal.Entry{State: journal.Done, Token: "another", Left: time.Hour, Record: encoded}
}

// A panic passes through Do, which concludes the run and reports the outcome once. Nothing is reported of a run that
// returns: the caller has its result.
func TestDo(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	whole := func() run.Ending { return run.Ending{How: run.Whole, Err: broken} }
	for name, test := range map[string]struct {
		journal journal.Journal
		operate func(operating) // after Start
		ending  func() run.Ending
		panics  any
		outcome run.Outcome // that is reported
		text    string      // of the error
		again   run.Kind
	}{
		"returns": {nil, nil, whole, nil, "", "", run.Stored},
		"operation panics": {
			nil, func(operating) { panic("own") }, whole, "own",
			run.OutcomePanicked, run.ErrNoReturn.Error(), run.InFlight,
		},
		"operation ends its goroutine": {
			nil, func(operating) { runtime.Goexit() }, whole, nil,
			run.OutcomePanicked, run.ErrNoReturn.Error(), run.InFlight,
		},
		"ending panics": {
			nil, nil, func() run.Ending { panic("ending") }, "ending", run.OutcomePanicked, "onceguard: a codec, ", run.InFlight,
		},
		"journal panics": {&panicking{}, nil, whole, "end", run.OutcomePanicked, "onceguard: a codec, ", run.InFlight},
		"journal panics twice": {
			&panicking{}, func(o operating) { o.Control().Keep() }, whole, "end",
			run.OutcomePanicked, "onceguard: a codec, ", run.InFlight,
		},
		"loses its key and panics": {
			nil, func(o operating) {
				o.Control().Keep()
				steal(o.T, o.client)
				panic("own")
			}, whole, "own", run.OutcomeLeaseLost, run.ErrNoReturn.Error() + "\nonceguard: a run that made b has lost its key: ", run.InFlight,
		},
		"is overtaken and panics": {
			&fakeJournal{}, func(o operating) {
				_ = overtake(o.ctx, theirs())
				panic("own")
			}, whole, "own", run.OutcomePanicked, run.ErrNoReturn.Error(), run.Stored,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Mini(t).Client(t)
			g, _ := newGuardOn(t, client, func(p *run.Policy) { p.Journal = test.journal })
			r := runOf(t, g, request(1))
			p := &product{keeps: true, body: "b"}
			var reports []run.Result
			var result run.Result
			var panicked any
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { panicked = recover() }()
				result = r.Do(func() {
					ctx := r.Start(p)
					if test.operate != nil {
						test.operate(operating{t, r, ctx, client})
					}
					r.CutOff()
				}, test.ending, func(result run.Result) { reports = append(reports, result) })
			}()
			<-done
			if panicked != test.panics {
				t.Errorf("panicked: %v, want %v", panicked, test.panics)
			}
			if test.outcome == "" {
				want(t, result, run.Own, run.OutcomeExecuted)
				if len(reports) != 0 || p.aborted {
					t.Errorf("reported: %+v, aborted %v", reports, p.aborted)
				}
			} else if len(reports) != 1 || reports[0].Outcome != test.outcome || !strings.HasPrefix(reports[0].Err.Error(), test.text) || !p.aborted {
				t.Errorf("reported: %+v, aborted %v; want %s, %s", reports, p.aborted, test.outcome, test.text)
			}
			if err := r.Control().Discard(); !errors.Is(err, run.ErrCommitted) {
				t.Errorf("Discard afterwards: %v", err)
			}
			again := g.Begin(t.Context(), request(1))
			if again.Kind != test.again {
				t.Errorf("again: %+v, want %v", again, test.again)
			}
		})
	}
}
