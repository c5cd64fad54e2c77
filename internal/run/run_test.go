package run_test

import (
	"context"
	"errors"
	"fmt"
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

// newGuard returns a Guard on a Redis of its own. Its policy is the usual one, as changed.
func newGuard(t *testing.T, change ...func(*run.Policy)) (*run.Guard, *lock.Locker) {
	t.Helper()
	return newGuardOn(t, redistest.Mini(t).Client(t), change...)
}

// newGuardOn is newGuard on a Redis that the test shares.
func newGuardOn(t *testing.T, client redis.UniversalClient, change ...func(*run.Policy)) (*run.Guard, *lock.Locker) {
	t.Helper()
	locker := lock.New(client, "test", lock.WithOpTimeout(30*time.Second))
	t.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	p := run.Policy{Retention: time.Hour, MaxWaiters: 10, MaxDuration: time.Minute}
	for _, c := range change {
		c(&p)
	}
	return run.New("run", locker, p), locker
}

// request returns a request for the key "k" whose input has the sum n.
func request(n byte) *run.Run {
	return &run.Run{Request: run.Request{
		Key: "k", Fingerprints: []record.Fingerprint{{Kind: record.Kind{1}, Sum: [32]byte{n}}},
	}}
}

// product is a Product in memory.
type product struct {
	body   string
	keeps  bool
	sent   bool
	unable bool // Payload is too large
	sealed string

	aborted bool
	asked   int // calls of Keeps
}

func (p *product) BeginTx() error { return nil }
func (p *product) Seal(store func(head, body []byte)) error {
	p.sealed = p.body
	store([]byte("h"), []byte(p.sealed))
	return nil
}
func (p *product) Changed() bool                  { return p.body != p.sealed }
func (p *product) NeedsNoTx() bool                { return false }
func (p *product) Committed()                     {}
func (p *product) Rewind()                        {}
func (p *product) Freeze()                        {}
func (p *product) Abort()                         { p.aborted = true }
func (p *product) Payload() (_, _ []byte, _ bool) { return []byte("h"), []byte(p.body), !p.unable }
func (p *product) Tombstone(known bool) []byte {
	if known {
		return []byte("known")
	}
	return []byte("unknown")
}
func (p *product) Stores(bool) bool { p.asked++; return p.keeps }
func (p *product) Sent() bool       { return p.sent }
func (p *product) String() string   { return "made " + p.body }

// begin begins a run, and starts it.
func begin(t *testing.T, g *run.Guard, p *product) (*run.Run, context.Context) {
	t.Helper()
	r := runOf(t, g, request(1))
	return r, r.Start(p)
}

// runOf begins the run of a request, and returns it.
func runOf(t *testing.T, g *run.Guard, r *run.Run) *run.Run {
	t.Helper()
	if result := g.Begin(t.Context(), r); result.Kind != run.Begun {
		t.Fatalf("%+v, want a run", result)
	}
	return r
}

// want checks what a request gets.
func want(t *testing.T, result run.Result, kind run.Kind, outcome run.Outcome) {
	t.Helper()
	if result.Kind != kind || result.Outcome != outcome {
		t.Errorf("%+v, want %v, %q", result, kind, outcome)
	}
}

// A second CutOff does nothing: it comes from the defer of a door whose operation has panicked afterwards.
func TestCutOffTwice(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, func(p *run.Policy) { p.MaxDuration = 50 * time.Millisecond })
	req := request(1)
	r := runOf(t, g, req)
	ctx := r.Start(&product{keeps: true})
	<-ctx.Done()
	if err := r.CutOff(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want why the context was done", err)
	}
	phase := req.Phases.Operation
	if err := r.CutOff(); err != nil || req.Phases.Operation != phase {
		t.Errorf("the second: %v, %v; want nothing, and still %v", err, req.Phases.Operation, phase)
	}
	want(t, r.Conclude(run.Ending{How: run.Whole}), run.Own, run.OutcomeExecuted)
}

// CutOff ends the context of an operation that is over in time, and returns no reason.
func TestCutOffInTime(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t)
	r, ctx := begin(t, g, &product{keeps: true})
	if ctx.Err() != nil {
		t.Error("the context is done before")
	}
	if err := r.CutOff(); err != nil || !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("%v; the context: %v", err, ctx.Err())
	}
	if err := r.Control().Discard(); !errors.Is(err, run.ErrCommitted) {
		t.Errorf("Discard afterwards: %v", err)
	}
	r.Conclude(run.Ending{How: run.Whole})
}

// What a run leaves behind is what a repetition gets.
func TestConclude(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		product product
		say     func(*run.Control)
		how     run.How
		outcome run.Outcome
		again   run.Kind
		payload string
		err     bool
	}{
		"stored":       {product{keeps: true, body: "b"}, nil, run.Whole, run.OutcomeExecuted, run.Stored, "hb", false},
		"freed":        {product{}, nil, run.Whole, run.OutcomeFreed, run.Begun, "", false},
		"too large":    {product{keeps: true, unable: true}, nil, run.Whole, run.OutcomeNotStored, run.NotKept, "known", false},
		"partial":      {product{}, nil, run.Partial, run.OutcomeNotStored, run.NotKept, "known", true},
		"panicked":     {product{}, nil, run.Interrupted, run.OutcomePanicked, run.InFlight, "", true},
		"kept, broken": {product{}, (*run.Control).Keep, run.Broken, run.OutcomeRunUnknown, run.NotKept, "unknown", true},
		"sent, broken": {product{sent: true}, (*run.Control).Sending, run.Broken, run.OutcomeRunUnknown, run.UnknownNotKept, "", true},
		"unknown":      {product{keeps: true}, (*run.Control).Unknown, run.Whole, run.OutcomeRunUnknown, run.InFlight, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, _ := newGuard(t)
			r, _ := begin(t, g, &test.product)
			if test.say != nil {
				test.say(r.Control())
			}
			r.CutOff()
			end := run.Ending{How: test.how}
			if test.how != run.Whole {
				end.Err = errors.New("own")
			}
			result := r.Conclude(end)
			want(t, result, run.Own, test.outcome)
			if result.Err == nil == test.err {
				t.Errorf("Err = %v, want one: %v", result.Err, test.err)
			}
			if stores := test.again != run.Begun && test.again != run.InFlight; (result.Size > 0) != stores {
				t.Errorf("size %d", result.Size)
			}
			next := request(1)
			again := g.Begin(t.Context(), next)
			if again.Kind != test.again || string(again.Record.Body) != test.payload || again.Kind == run.Stored && again.Size != result.Size {
				t.Errorf("again: %+v, want %v, %q, size %d", again, test.again, test.payload, result.Size)
			}
			if test.again == run.Begun {
				next.Start(&test.product)
				next.CutOff()
				next.Conclude(run.Ending{How: run.Whole})
				return
			}
			if other := g.Begin(t.Context(), request(2)); other.Kind != run.Reused {
				t.Errorf("another input: %+v, want Reused", other)
			}
		})
	}
}

// How long a record is kept, and what of the run is in it.
func TestRecord(t *testing.T) {
	t.Parallel()
	const declared = "the operation declared its outcome unknown"
	trace := record.ParseTrace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	for name, test := range map[string]struct {
		say    func(*run.Control)
		how    run.How
		retain time.Duration
		keep   time.Duration
		asked  int
		err    string
	}{
		"whole":                     {func(*run.Control) {}, run.Whole, time.Minute, time.Minute, 1, ""},
		"sent":                      {(*run.Control).Sending, run.Whole, 2 * time.Hour, 2 * time.Hour, 0, ""},
		"kept":                      {(*run.Control).Keep, run.Whole, time.Minute, time.Minute, 0, ""},
		"partial":                   {func(*run.Control) {}, run.Partial, time.Minute, time.Minute, 0, "own"},
		"unknown":                   {unknownAndSent, run.Whole, time.Minute, time.Hour, 0, declared},
		"unknown, kept longer":      {unknownAndSent, run.Whole, 2 * time.Hour, 2 * time.Hour, 0, declared},
		"broken":                    {(*run.Control).Keep, run.Broken, time.Minute, time.Hour, 0, "own"},
		"interrupted":               {(*run.Control).Sending, run.Interrupted, time.Minute, time.Hour, 0, "own"},
		"interrupted after Unknown": {unknownAndSent, run.Interrupted, time.Minute, time.Hour, 0, "own"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Mini(t).Client(t)
			g, locker := newGuardOn(t, client)
			req := request(1)
			req.Traceparent = func() record.Trace { return trace }
			p := &product{keeps: true}
			r := runOf(t, g, req)
			r.Start(p)
			test.say(r.Control())
			r.Control().Retain(test.retain)
			r.CutOff()
			end := run.Ending{How: test.how}
			if test.how != run.Whole {
				end.Err = errors.New("own")
			}
			result := r.Conclude(end)
			if got := strings.TrimPrefix(fmt.Sprint(result.Err), "onceguard: "); !strings.HasPrefix(got, test.err) || (test.err == "") != (result.Err == nil) {
				t.Errorf("%v, want %s", result.Err, test.err)
			}
			if left := client.PTTL(t.Context(), locker.StorageKey("k")).Val(); left > test.keep || left < test.keep-30*time.Second {
				t.Errorf("kept for %v, want %v", left, test.keep)
			}
			claim, err := locker.Look(t.Context(), "k")
			rec, decodeErr := new(record.Codec).Decode(locker.StorageKey("k"), claim.Value)
			if err != nil || decodeErr != nil || rec.Trace != trace || rec.Fingerprint != req.Fingerprints[0] ||
				rec.Completed.Sub(req.Phases.Operation.Start.Add(req.Phases.Operation.Duration)).Abs() > time.Millisecond {
				t.Errorf("%v, %v, %+v of %+v", err, decodeErr, rec, req.Phases)
			}
			if p.asked != test.asked {
				t.Errorf("Keeps was called %d times, want %d", p.asked, test.asked)
			}
		})
	}
}

func unknownAndSent(c *run.Control) {
	c.Unknown()
	c.Sending()
}

// A run that another one has overtaken hands out what the journal has, and settles the key with it.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	j := &fakeJournal{}
	g, _ := newGuard(t, func(p *run.Policy) { p.Journal = j })
	req := request(1)
	r := runOf(t, g, req)
	ctx := r.Start(&product{body: "mine"})
	if err := overtake(ctx, theirs()); !errors.Is(err, journal.ErrAnswered) {
		t.Error(err)
	}
	r.CutOff()
	result := r.Conclude(run.Ending{How: run.Whole})
	want(t, result, run.Stored, run.OutcomeReplayed)
	if string(result.Record.Body) != "theirs" || result.Settle.Start.IsZero() {
		t.Errorf("%+v, want theirs, and when the key was settled", result)
	}
	want(t, g.Begin(t.Context(), request(1)), run.Stored, run.OutcomeReplayed)
}

// fakeJournal is an intent journal, or a transactional one, that has one run.
type fakeJournal struct {
	journal.Journal
	intent bool
	fails  int // so many Begins fail
	begun  int
	ended  []journal.Entry // what each End was told
}

func (*fakeJournal) Namespace() string { return "test" }

func (j *fakeJournal) IsIntent() bool { return j.intent }

func (j *fakeJournal) Begin(_ context.Context, run journal.Run) (journal.Entry, error) {
	if j.begun++; j.begun <= j.fails {
		return journal.Entry{}, errors.New("no answer")
	}
	if j.intent {
		return journal.Entry{State: journal.Begun, Token: run.Token}, nil
	}
	return journal.Entry{}, nil
}

func (j *fakeJournal) End(_ context.Context, run journal.Run, encoded []byte, keep time.Duration) (journal.Entry, error) {
	entry := journal.Entry{}
	if encoded != nil {
		entry = journal.Entry{State: journal.Done, Token: run.Token, Record: encoded, Left: keep}
	}
	j.ended = append(j.ended, entry)
	return entry, nil
}

// What a run tells its journal at its end: a record, that its row is free, or nothing.
func TestEndInJournal(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		intent  bool
		how     run.How
		product product
		say     func(*run.Control)
		ended   int
		payload string // of the record; empty: none
		outcome run.Outcome
		again   run.Kind
		isErr   bool
	}{
		"stored":         {false, run.Whole, product{keeps: true, body: "b"}, nil, 1, "hb", run.OutcomeExecuted, run.Stored, true},
		"stored, intent": {true, run.Whole, product{keeps: true, body: "b"}, nil, 1, "hb", run.OutcomeExecuted, run.Stored, false},
		"tombstone":      {true, run.Partial, product{}, nil, 1, "known", run.OutcomeNotStored, run.NotKept, false},
		"freed":          {false, run.Whole, product{}, nil, 0, "", run.OutcomeFreed, run.Begun, false},
		"freed, intent":  {true, run.Whole, product{}, nil, 1, "", run.OutcomeFreed, run.Begun, false},
		"left":           {false, run.Interrupted, product{}, nil, 0, "", run.OutcomePanicked, run.InFlight, false},
		"left and kept":  {false, run.Interrupted, product{}, (*run.Control).Keep, 1, "unknown", run.OutcomePanicked, run.NotKept, false},
		"left, intent":   {true, run.Interrupted, product{}, (*run.Control).Keep, 0, "", run.OutcomePanicked, run.InFlight, false},
		"left and sent":  {false, run.Interrupted, product{}, (*run.Control).Sending, 1, "unknown", run.OutcomePanicked, run.UnknownNotKept, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := &fakeJournal{intent: test.intent}
			g, locker := newGuard(t, func(p *run.Policy) { p.Journal = j })
			r, _ := begin(t, g, &test.product)
			if r.IsStrict() != test.intent {
				t.Errorf("strict: %v", r.IsStrict())
			}
			wantNote(t, locker, record.Codec{}, true)
			claim, err := locker.Inspect(t.Context(), locker.StorageKey("k"))
			if err != nil {
				t.Error(err)
			}
			if test.say != nil {
				test.say(r.Control())
			}
			r.CutOff()
			result := r.Conclude(run.Ending{How: test.how})
			want(t, result, run.Own, test.outcome)
			if result.Err == nil == test.isErr || len(j.ended) != test.ended {
				t.Errorf("%v, %d Ends, want an error %v, %d Ends", result.Err, len(j.ended), test.isErr, test.ended)
			}
			if test.payload != "" && len(j.ended) == 1 {
				rec, err := new(record.Codec).Decode(locker.StorageKey("k"), j.ended[0].Record)
				if string(rec.Body) != test.payload || err != nil || j.ended[0].Token != claim.Token || result.Size != len(j.ended[0].Record) {
					t.Errorf("%q, %v, size %d; want %q", rec.Body, err, result.Size, test.payload)
				}
			}
			bare := run.New("run", locker, run.Policy{Retention: time.Hour, MaxDuration: time.Minute})
			next := request(1)
			again := bare.Begin(t.Context(), next)
			if again.Kind != test.again {
				t.Errorf("again: %+v, want %v", again, test.again)
			}
			if again.Kind == run.Begun {
				next.Start(&product{})
				next.CutOff()
				next.Conclude(run.Ending{How: run.Whole})
			}
		})
	}
}

// A Begin that fails is called once more.
func TestBeginAgain(t *testing.T) {
	t.Parallel()
	for fails, begun := range map[int]int{0: 1, 1: 2, 2: 2} {
		j := &fakeJournal{fails: fails}
		g, locker := newGuard(t, func(p *run.Policy) { p.Journal = j })
		r := request(1)
		result := g.Begin(t.Context(), r)
		if isRefused := result.Kind == run.NotBegun; j.begun != begun || isRefused != (fails > 1) {
			t.Errorf("%d fail: %+v after %d, want %d", fails, result, j.begun, begun)
		}
		if result.Kind == run.Begun {
			r.Start(&product{})
			r.CutOff()
			r.Conclude(run.Ending{How: run.Whole})
		}
		wantFree(t, locker)
	}
}
