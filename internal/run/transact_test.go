package run_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// txProduct is a product that notes what its transactions have called.
type txProduct struct {
	product
	calls []string
}

func (p *txProduct) BeginTx() error { p.calls = append(p.calls, "begin"); return nil }
func (p *txProduct) Seal(store func(head, body []byte)) error {
	p.calls = append(p.calls, "seal")
	return p.product.Seal(store)
}
func (p *txProduct) Committed() { p.calls = append(p.calls, "keep") }
func (p *txProduct) Rewind()    { p.calls = append(p.calls, "rewind") }
func (p *txProduct) Freeze()    { p.calls = append(p.calls, "freeze") }

type (
	seal = func() (journal.Commit, error)
	find = func(ours journal.Run, c journal.Commit) (journal.Entry, error)
)

var errDo = errors.New("do has failed")

// How a transaction has ended follows from its error, from whether it was sealed, and from what the journal has then.
func TestTransactionEnds(t *testing.T) {
	t.Parallel()
	sealed := func(s seal) (err error) { _, err = s(); return err }
	unsealed := func(seal) error { return nil }
	fail := func(do func(seal) error) func(seal) error {
		return func(s seal) error { return errors.Join(do(s), errDo) }
	}
	crash := func(do func(seal) error) func(seal) error {
		return func(s seal) error { _ = do(s); panic("do") }
	}
	own := func(r journal.Run, c journal.Commit) (journal.Entry, error) {
		return journal.Entry{State: journal.Done, Token: r.Token, Record: c.Record, Left: time.Hour}, nil
	}
	found := func(state journal.State, isOurs bool) find {
		return func(r journal.Run, _ journal.Commit) (journal.Entry, error) {
			e := journal.Entry{State: state, Token: "another", Note: noteOf(lock.None("test"), 1)}
			if isOurs {
				e.Token = r.Token
			}
			return e, nil
		}
	}
	nothing := func(journal.Run, journal.Commit) (journal.Entry, error) { return journal.Entry{}, nil }
	down := func(journal.Run, journal.Commit) (journal.Entry, error) { return journal.Entry{}, errDown }
	rolledBack, unknown, answered := []string{"begin", "rewind"}, []string{"begin", "freeze"}, []string{"begin", "seal", "freeze"}
	for name, test := range map[string]struct {
		do    func(seal) error
		find  find
		err   error // of Transact
		calls []string
		again error // of another Transact
		kind  run.Kind
	}{
		"committed":                 {sealed, nil, nil, []string{"begin", "seal", "keep"}, journal.ErrAnswered, run.Own},
		"sealed twice":              {func(s seal) error { return errors.Join(sealed(s), sealed(s)) }, nil, nil, []string{"begin", "seal", "seal", "keep"}, journal.ErrAnswered, run.Own},
		"not sealed":                {unsealed, nil, journal.ErrAnswered, unknown, journal.ErrAnswered, run.CommitUnknown},
		"failed":                    {fail(unsealed), nothing, errDo, rolledBack, nil, run.Own},
		"failed, own row begun":     {fail(unsealed), found(journal.Begun, true), errDo, rolledBack, nil, run.Own},
		"failed, own row runs":      {fail(unsealed), found(journal.Running, true), errDo, rolledBack, nil, run.Own},
		"failed, own row is lost":   {fail(unsealed), found(journal.Unfinished, true), journal.ErrAnswered, unknown, journal.ErrAnswered, run.UnknownYet},
		"failed, own row is done":   {fail(unsealed), found(journal.Done, true), journal.ErrAnswered, unknown, journal.ErrAnswered, run.NotKept},
		"failed, another's begun":   {fail(unsealed), found(journal.Begun, false), journal.ErrAnswered, unknown, journal.ErrAnswered, run.InFlight},
		"failed, another's runs":    {fail(unsealed), found(journal.Running, false), journal.ErrAnswered, unknown, journal.ErrAnswered, run.InFlight},
		"failed, no answer":         {fail(unsealed), down, journal.ErrAnswered, unknown, journal.ErrAnswered, run.CommitUnknown},
		"sealed, failed":            {fail(sealed), nothing, errDo, []string{"begin", "seal", "rewind"}, nil, run.Own},
		"sealed, failed, committed": {fail(sealed), own, nil, []string{"begin", "seal", "keep"}, journal.ErrAnswered, run.Own},
		"sealed, failed, another's": {fail(sealed), found(journal.Done, false), journal.ErrAnswered, answered, journal.ErrAnswered, run.NotKept},
		"sealed, failed, no answer": {fail(sealed), down, journal.ErrAnswered, answered, journal.ErrAnswered, run.CommitUnknown},
		"panicked":                  {crash(unsealed), nil, nil, rolledBack, nil, run.Own},
		"sealed, panicked":          {crash(sealed), nil, nil, answered, journal.ErrAnswered, run.CommitUnknown},
		"panicked while looking": {
			fail(sealed), func(journal.Run, journal.Commit) (journal.Entry, error) { panic("find") }, nil, answered, journal.ErrAnswered, run.CommitUnknown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, _ := newGuard(t, func(p *run.Policy) { p.Journal = &fakeJournal{} })
			p := &txProduct{product: product{body: "b"}}
			r := runOf(t, g, request(1))
			ctx := r.Start(p)
			transact := func(do func(seal) error, f find) (panicked any, err error) {
				ours, _, _ := journal.FromContext(ctx)
				var c journal.Commit
				defer func() { panicked = recover() }()
				return nil, journal.Transact(ctx, func(s seal) error {
					return do(func() (_ journal.Commit, err error) { c, err = s(); return c, err })
				}, func(journal.Run, bool) (journal.Entry, error) { return f(ours, c) })
			}
			panicked, err := transact(test.do, test.find)
			if (err == nil) != (test.err == nil) || test.err != nil && !errors.Is(err, test.err) || !slices.Equal(p.calls, test.calls) {
				t.Errorf("%v after %v, want %v after %v", err, p.calls, test.err, test.calls)
			}
			if strings.Contains(name, "panicked") != (panicked != nil) {
				t.Errorf("panicked: %v", panicked)
			}
			if err := r.Control().Discard(); errors.Is(err, run.ErrCommitted) != slices.Contains(p.calls, "keep") {
				t.Errorf("Discard: %v", err)
			}
			if _, err := transact(fail(unsealed), nothing); test.again != nil && !errors.Is(err, test.again) || test.again == nil && !errors.Is(err, errDo) {
				t.Errorf("again: %v, want %v", err, test.again)
			}
			r.CutOff()
			if result := r.Conclude(run.Ending{How: run.Whole}); result.Kind != test.kind {
				t.Errorf("%+v, want %v", result, test.kind)
			}
			if _, err := transact(fail(unsealed), nothing); err == nil || errors.Is(err, errDo) {
				t.Errorf("after the run: %v", err)
			}
		})
	}
}

// CutOff waits for a transaction that may be committing, and gives up one that is still open.
func TestCutOffDuringATransaction(t *testing.T) {
	t.Parallel()
	for name, isSealed := range map[string]bool{"sealed": true, "open": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, &outage{}, time.Hour, func(t *testing.T, g *run.Guard, _ *lock.Locker) {
				r, ctx := begin(t, g, &product{body: "b", keeps: true})
				goOn := make(chan struct{})
				ended := make(chan error, 1)
				go func() {
					ended <- journal.Transact(ctx, func(s seal) error {
						if isSealed {
							_, err := s()
							<-goOn
							return err
						}
						err := journal.Transact(ctx, func(seal) error { return nil }, nil)
						if err == nil {
							t.Error("a second transaction at the same time")
						}
						<-goOn
						_, err = s()
						return err
					}, func(journal.Run, bool) (journal.Entry, error) { return journal.Entry{}, nil })
				}()
				synctest.Wait()
				cut := make(chan struct{})
				go func() {
					r.CutOff()
					close(cut)
				}()
				synctest.Wait()
				select {
				case <-cut:
					if isSealed {
						t.Error("CutOff has not waited")
					}
				default:
					if !isSealed {
						t.Error("CutOff waits")
					}
				}
				close(goOn)
				<-cut
				if err := <-ended; (err == nil) != isSealed {
					t.Errorf("the transaction: %v", err)
				}
				result := r.Conclude(run.Ending{How: run.Whole})
				if isSealed {
					want(t, result, run.Own, run.OutcomeExecuted)
					return
				}
				want(t, result, run.CommitUnknown, run.OutcomeRunUnknown)
				if result.Err == nil || !errors.Is(result.Err, run.ErrLeftOpen) {
					t.Error(result.Err)
				}
			})
		})
	}
}

// After Keep, or once a part of the product was sent, the background stores that the outcome is unknown. Otherwise the
// key is left, as it is if the key has a hold.
func TestCommitUnknown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		say        func(*run.Control)
		atMostOnce bool
		retain     time.Duration
		keep       time.Duration // 0: nothing is stored
	}{
		"nothing":            {func(*run.Control) {}, false, time.Minute, 0},
		"kept":               {(*run.Control).Keep, false, time.Minute, time.Hour},
		"kept longer":        {(*run.Control).Keep, false, 2 * time.Hour, 2 * time.Hour},
		"sent":               {(*run.Control).Sending, false, time.Minute, time.Hour},
		"unknown":            {(*run.Control).Unknown, false, time.Minute, 0},
		"kept, at most once": {(*run.Control).Keep, true, time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := &fakeJournal{}
			g, locker := newGuard(t, func(p *run.Policy) { p.Journal, p.AtMostOnce = j, test.atMostOnce })
			r, ctx := begin(t, g, &product{body: "b"})
			test.say(r.Control())
			r.Control().Retain(test.retain)
			_ = journal.Transact(ctx, func(seal) error { return nil }, nil)
			r.CutOff()
			result := r.Conclude(run.Ending{How: run.Whole})
			want(t, result, run.CommitUnknown, run.OutcomeRunUnknown)
			if isPending := errors.Is(result.Err, lock.ErrPending); isPending != (test.keep > 0) || !errors.Is(result.Err, journal.ErrAnswered) {
				t.Errorf("%v, want it to be pending: %v", result.Err, test.keep > 0)
			}
			if test.keep == 0 {
				want(t, g.Begin(t.Context(), request(1)), run.InFlight, run.OutcomeInFlight)
				return
			}
			limit, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if claim, err := locker.Wait(limit, "k"); err != nil || claim.State != lock.Settled {
				t.Fatalf("%v, %v", claim.State, err)
			}
			if left := j.ended[0].Left; left > test.keep || left < test.keep-30*time.Second {
				t.Errorf("kept for %v, want %v", left, test.keep)
			}
			want(t, g.Begin(t.Context(), request(1)), run.UnknownNotKept, run.OutcomeUnknown)
		})
	}
}

// A product that was changed after the seal, perhaps by an attempt that was not sealed: the journal tells whether the
// sealed one is committed.
func TestChangedSinceSeal(t *testing.T) {
	t.Parallel()
	failed := errors.New("no answer")
	for name, test := range map[string]struct {
		found   func(sealed journal.Commit) (journal.Entry, error)
		err     error
		kind    run.Kind
		outcome run.Outcome
	}{
		"committed": {func(c journal.Commit) (journal.Entry, error) {
			return journal.Entry{State: journal.Done, Token: c.Run.Token, Record: c.Record, Left: time.Hour}, nil
		}, nil, run.Own, run.OutcomeExecuted},
		"not committed": {func(journal.Commit) (journal.Entry, error) {
			return journal.Entry{}, nil
		}, journal.ErrAnswered, run.CommitUnknown, run.OutcomeRunUnknown},
		"not known": {func(c journal.Commit) (journal.Entry, error) {
			return journal.Entry{State: journal.Done, Token: c.Run.Token, Record: c.Record, Left: time.Hour}, failed
		}, journal.ErrAnswered, run.CommitUnknown, run.OutcomeRunUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, _ := newGuard(t, func(p *run.Policy) { p.Journal = &fakeJournal{} })
			p := &product{body: "first"}
			r, ctx := begin(t, g, p)
			var sealed journal.Commit
			err := journal.Transact(ctx, func(seal func() (journal.Commit, error)) (err error) {
				sealed, err = seal()
				p.body = "second"
				return err
			}, func(journal.Run, bool) (journal.Entry, error) { return test.found(sealed) })
			if !errors.Is(err, test.err) {
				t.Errorf("%v, want %v", err, test.err)
			}
			r.CutOff()
			want(t, r.Conclude(run.Ending{How: run.Whole}), test.kind, test.outcome)
			again := g.Begin(t.Context(), request(1))
			if isStored := again.Kind == run.Stored && string(again.Record.Body) == "hfirst"; isStored != (test.err == nil) {
				t.Errorf("again: %+v", again)
			}
		})
	}
}

// A run whose transaction is committed is executed, whatever its operation does afterwards. The observer learns of a
// panic.
func TestPanicAfterTheCommit(t *testing.T) {
	t.Parallel()
	errPanicked := errors.New("panicked")
	for how, wantErr := range map[run.How]error{run.Interrupted: errPanicked, run.Broken: nil, run.Whole: nil} {
		g, _ := newGuard(t, func(p *run.Policy) { p.Journal = &fakeJournal{} })
		p := &product{body: "b"}
		r, ctx := begin(t, g, p)
		if err := journal.Transact(ctx, func(seal func() (journal.Commit, error)) error {
			_, err := seal()
			return err
		}, nil); err != nil {
			t.Fatal(err)
		}
		r.CutOff()
		result := r.Conclude(run.Ending{How: how, Err: errPanicked})
		want(t, result, run.Own, run.OutcomeExecuted)
		if !errors.Is(result.Err, wantErr) || result.Size == 0 {
			t.Errorf("%v: %v, size %d; want %v", how, result.Err, result.Size, wantErr)
		}
		want(t, g.Begin(t.Context(), request(1)), run.Stored, run.OutcomeReplayed)
	}
}

// panicky is a product that panics in one of its methods, as a response does whose underlying writer panics.
type panicky struct {
	txProduct
	in string
}

func (p *panicky) panicIn(method string) {
	if p.in == method {
		panic(method)
	}
}

func (p *panicky) BeginTx() error { p.panicIn("begin"); return nil }
func (p *panicky) Seal(store func(head, body []byte)) error {
	p.panicIn("seal")
	return p.txProduct.Seal(store)
}
func (p *panicky) Changed() bool { p.panicIn("changed"); return false }
func (p *panicky) Committed()    { p.panicIn("keep") }
func (p *panicky) Rewind()       { p.panicIn("rewind") }
func (p *panicky) Freeze()       { p.panicIn("freeze") }

// fault: the product panics while a transaction begins, is sealed or ends. Expected: CutOff returns in the goroutine that
// panicked, and the transaction has ended as it has in the database.
func TestProductPanicsInATransaction(t *testing.T) {
	t.Parallel()
	for in, test := range map[string]struct {
		fails   bool // do
		lookErr error
		kind    run.Kind
		outcome run.Outcome
	}{
		"begin":   {false, nil, run.Own, run.OutcomePanicked},
		"seal":    {false, nil, run.Own, run.OutcomePanicked},
		"changed": {false, nil, run.CommitUnknown, run.OutcomeRunUnknown},
		"keep":    {false, nil, run.Own, run.OutcomeExecuted},
		"rewind":  {true, nil, run.Own, run.OutcomePanicked},
		"freeze":  {true, errDown, run.CommitUnknown, run.OutcomeRunUnknown},
	} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			inBubble(t, &outage{}, time.Hour, func(t *testing.T, g *run.Guard, _ *lock.Locker) {
				r := runOf(t, g, request(1))
				ctx := r.Start(&panicky{txProduct{product: product{body: "b"}}, in})
				func() {
					defer func() {
						if got := recover(); got != in {
							t.Errorf("panicked: %v", got)
						}
					}()
					defer r.CutOff()
					_ = journal.Transact(ctx, func(s seal) error {
						if _, err := s(); err != nil || test.fails {
							return errors.Join(errDo, err)
						}
						return nil
					}, func(journal.Run, bool) (journal.Entry, error) { return journal.Entry{}, test.lookErr })
				}()
				result := r.Conclude(run.Ending{How: run.Interrupted, Err: run.ErrNoReturn})
				want(t, result, test.kind, test.outcome)
				if in == "keep" && !errors.Is(r.Control().Discard(), run.ErrCommitted) {
					t.Error("it can be discarded")
				}
			})
		})
	}
}
