package run_test

import (
	"errors"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/journal"
)

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
		}, journal.ErrUncommitted, run.CommitUnknown, run.OutcomeRunUnknown},
		"not known": {func(c journal.Commit) (journal.Entry, error) {
			return journal.Entry{State: journal.Done, Token: c.Run.Token, Record: c.Record, Left: time.Hour}, failed
		}, journal.ErrUncommitted, run.CommitUnknown, run.OutcomeRunUnknown},
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
