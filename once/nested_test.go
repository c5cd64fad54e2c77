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
			return d.doIn(cancelled(ctx, fmt.Errorf("stop: %w", once.Final(errDeclined))), d.charge, id("inner")).err
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
			return d.event("store-unavailable").Err
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				outer, d := open(t, b, once.WithAtMostOnce()), open(t, b, once.WithAtMostOnce(), once.WithCancel())
				var returned error
				a := outer.do(func(ctx context.Context) (receipt, error) {
					returned = inner(ctx, d)
					return receipt{}, returned
				})
				if a.err == nil || !strings.HasPrefix(name, "the error") && !errors.Is(a.err, errDeclined) {
					t.Errorf("%v, want an error that is %v", a.err, errDeclined)
				}
				var refused *once.Refused
				if errors.As(returned, &refused) && refused.Retryable { // see TestRefusalOfAnInnerDo
					outer.event("unknown")
					outer.wantRefused(outer.do(outer.charge), once.ErrInFlight, "in-flight")
				} else {
					outer.event("executed")
					outer.wantError(outer.do(outer.charge), a.err.Error(), true, "replayed")
				}
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
				outer.event("freed")
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
				outer.want(outer.do(outer.charge), 2, false, "executed")
			})
		}
	}
}

// A refusal that a later call may not get is never the result of the function that passes it on.
//
// fault: a consumer's function, which runs at most once, returns that an inner Do is in flight. Expected: the message is
// neither acknowledged nor run again at once, unless the function has said what has happened
func TestRefusalOfAnInnerDo(t *testing.T) {
	const freed, stored, left once.Outcome = "freed", "executed", "unknown"
	itself := func(err error) error { return err }
	for name, c := range map[string]struct {
		edit            edit // of the inner key, whose outcome is unknown
		wrap            func(error) error
		usually, strict once.Outcome
	}{
		"itself":                 {id("inner"), itself, freed, left},
		"deep":                   {id("inner"), func(err error) error { return fmt.Errorf("inner: %w", err) }, freed, left},
		"joined":                 {id("inner"), func(err error) error { return errors.Join(errDeclined, err) }, freed, left},
		"marked NothingHappened": {id("inner"), once.NothingHappened, freed, freed},
		"marked Final":           {id("inner"), once.Final, stored, stored},
		"marked Unknown":         {id("inner"), once.Unknown, left, left},
		"not retryable":          {id(""), itself, freed, stored},
		"the text alone":         {id("inner"), func(err error) error { return errors.New(err.Error()) }, freed, stored},
	} {
		for mode, want := range map[string]once.Outcome{"": c.usually, "at most once": c.strict, "intent": c.strict} {
			for _, isBetween := range []bool{false, true} { // a third Do returns the refusal to the outer one
				t.Run(fmt.Sprint(name, ", ", mode, isBetween), func(t *testing.T) {
					t.Parallel()
					b := redistest.Mini(t)
					var opts []once.Option
					switch mode {
					case "at most once":
						opts = append(opts, once.WithAtMostOnce())
					case "intent":
						opts = append(opts, once.WithJournal(newJournal(true)))
					}
					outer, d := open(t, b, opts...), open(t, b)
					d.do(fails(once.Unknown(errDeclined)), id("inner"))
					innermost := func(ctx context.Context) error { return d.doIn(ctx, d.charge, c.edit).err }
					f := func(ctx context.Context) (receipt, error) { return receipt{}, c.wrap(innermost(ctx)) }
					if isBetween {
						between := func(ctx context.Context) (receipt, error) { return receipt{}, innermost(ctx) }
						f = func(ctx context.Context) (receipt, error) {
							return receipt{}, c.wrap(d.doIn(ctx, between, id("between")).err)
						}
					}
					a := outer.do(f)
					if e := outer.wantError(a, a.err.Error(), false, want); (e.Err != nil) != (want == left) {
						t.Errorf("the Event has the error %v", e.Err)
					}
					next := outer.do(outer.charge)
					switch want {
					case freed:
						outer.want(next, 2, false, "executed")
					case stored:
						outer.wantError(next, a.err.Error(), true, "replayed")
					case left:
						outer.wantRefused(next, once.ErrInFlight, "in-flight")
					}
				})
			}
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
