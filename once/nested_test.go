package once_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/once"
)

// marked is an Input that has no JSON: its error claims that nothing has happened.
type marked struct{}

func (marked) MarshalJSON() ([]byte, error) { return nil, once.NothingHappened(errDeclined) }

// Only what f itself returns carries a mark. The outer function has had its effect, and returns an error that this
// package has given it: the outer key is neither freed nor finished by a mark in that error.
//
// fault: a context's cause, or the error of an Input, is marked NothingHappened, and a function returns what an inner Do
// or a Resolve has made of it. Expected: one effect at most once
func TestMarkOfWhatDoWraps(t *testing.T) {
	cancelled := func(ctx context.Context, cause error) context.Context {
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(cause)
		return ctx
	}
	for name, inner := range map[string]func(ctx context.Context, d *desk) error{
		"the cause of the caller's context": func(ctx context.Context, d *desk) error {
			return d.doIn(cancelled(ctx, once.NothingHappened(errDeclined)), d.charge, id("inner")).err
		},
		"deep in the cause": func(ctx context.Context, d *desk) error {
			return d.doIn(cancelled(ctx, fmt.Errorf("stop: %w", once.Unknown(errDeclined))), d.charge, id("inner")).err
		},
		"the cause of the function's context": func(ctx context.Context, d *desk) error {
			ctx, cancel := context.WithCancelCause(ctx)
			var seen error
			d.doIn(ctx, func(ctx context.Context) (receipt, error) {
				cancel(once.NothingHappened(errDeclined))
				<-ctx.Done()
				seen = context.Cause(ctx)
				return receipt{}, seen
			}, id("inner"))
			return seen
		},
		"the error of an Input": func(ctx context.Context, d *desk) error {
			return d.doIn(ctx, d.charge, id("inner"), input(marked{})).err
		},
		"Resolve": func(ctx context.Context, d *desk) error {
			ended := cancelled(ctx, once.NothingHappened(errDeclined))
			return d.guard.Resolve(ended, once.FromContext(ctx).Key(), "another", receipt{}, nil)
		},
		"the Event": func(ctx context.Context, d *desk) error {
			d.doIn(cancelled(ctx, once.NothingHappened(errDeclined)), d.charge, id("inner"))
			return d.event(once.StoreUnavailable).Err
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				outer, d := open(t, b, once.WithAtMostOnce()), open(t, b, once.WithAtMostOnce(), once.WithCancel())
				a := outer.do(func(ctx context.Context) (receipt, error) { return receipt{}, inner(ctx, d) })
				if a.err == nil || !strings.HasPrefix(name, "the error") && !errors.Is(a.err, errDeclined) {
					t.Errorf("%v, want an error that is %v", a.err, errDeclined)
				}
				outer.event(once.Executed)
				outer.wantError(outer.do(outer.charge), a.err.Error(), true, once.Replayed)
				outer.wantRuns(1)
			})
		})
	}
}

// An error that f returns is never taken for Do's own answer, whose kinds tell a consumer what to do with its message. It
// keeps its text, and what else errors.Is and errors.As find in it.
//
// fault: a consumer's function returns the error of an inner Do. Expected: its message is not acknowledged
func TestAnswerOfAnInnerDo(t *testing.T) {
	answers := []error{
		once.ErrInFlight, once.ErrFailed, once.ErrUnavailable, once.ErrNotKnownYet, once.ErrReused, once.ErrNotStored, once.ErrOutcomeUnknown,
		once.ErrUnreadable, once.ErrInvalidKey,
	}
	for name, inner := range map[string]func(ctx context.Context, d *desk) error{
		"StoredError": func(ctx context.Context, d *desk) error {
			d.doIn(ctx, fails(once.Final(errDeclined)), id("inner"))
			return d.doIn(ctx, d.charge, id("inner")).err
		},
		"ErrNotStored": func(ctx context.Context, d *desk) error {
			d.doIn(ctx, func(context.Context) (receipt, error) {
				return receipt{Note: strings.Repeat("x", 1<<20)}, nil
			}, id("inner"))
			return d.doIn(ctx, d.charge, id("inner")).err
		},
		"ErrInFlight": func(ctx context.Context, d *desk) error {
			d.doIn(ctx, fails(once.Unknown(errDeclined)), id("inner"))
			return d.doIn(ctx, d.charge, id("inner")).err
		},
		"ErrInvalidKey": func(ctx context.Context, d *desk) error { return d.doIn(ctx, d.charge, id("")).err },
		"ErrUnavailable": func(ctx context.Context, d *desk) error {
			ctx, cancel := context.WithCancelCause(ctx)
			cancel(errDeclined)
			return d.doIn(ctx, d.charge, id("inner")).err
		},
		"the reason alone": func(context.Context, *desk) error { return once.ErrNotStored },
	} {
		for how, wrap := range map[string]func(error) error{
			"itself": func(err error) error { return err },
			"deep":   func(err error) error { return fmt.Errorf("outer: %w", err) },
			"joined": func(err error) error { return errors.Join(errDeclined, err) },
			"marked": once.NothingHappened,
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				b := redistest.Mini(t)
				outer, d := open(t, b), open(t, b, once.WithCancel())
				var returned error
				a := outer.do(func(ctx context.Context) (receipt, error) {
					returned = wrap(inner(ctx, d))
					return receipt{}, returned
				})
				outer.event(once.Freed)
				var refused *once.Refused
				var stored *once.StoredError
				if errors.As(a.err, &refused) || errors.As(a.err, &stored) || a.err.Error() != returned.Error() {
					t.Errorf("%#v, want the text %q, and neither a Refused nor a StoredError", a.err, returned)
				}
				for _, answer := range answers {
					if errors.Is(a.err, answer) {
						t.Errorf("it is %v", answer)
					}
				}
				if strings.HasSuffix(how, "joined") && !errors.Is(a.err, errDeclined) || name == "ErrUnavailable" && !errors.Is(a.err, errDeclined) {
					t.Errorf("%v is no %v", a.err, errDeclined)
				}
				outer.want(outer.do(outer.charge), 2, false, once.Executed)
			})
		}
	}
}

// ErrUnavailable invites its caller to do the work in another way, so it is never the answer after f has run.
//
// fault: a COMMIT without a reply; a run whose key another call has taken, whose result is not confirmed
func TestUnavailableMeansThatNothingRan(t *testing.T) {
	t.Parallel()
	for kind := run.InFlight; kind < run.KindCount; kind++ {
		if reason := once.Reason(kind, run.OutcomeLeaseLost); reason == once.ErrUnavailable {
			t.Errorf("a run that has lost its key gets ErrUnavailable for the kind %v", kind)
		}
	}
	if reason := once.Reason(run.CommitUnknown, run.OutcomeRunUnknown); reason != once.ErrNotKnownYet {
		t.Errorf("%v, want ErrNotKnownYet", reason)
	}
	if reason := once.Reason(run.Unavailable, run.OutcomeStoreUnavailable); reason != once.ErrUnavailable {
		t.Errorf("%v, want ErrUnavailable", reason)
	}
}
