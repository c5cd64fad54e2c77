package once_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/once"
)

// What becomes of a key after each error, without and with WithAtMostOnce.
func TestErrors(t *testing.T) {
	const freed, stored, left once.Outcome = "freed", "executed", "unknown"
	for name, c := range map[string]struct {
		err             error
		usually, strict once.Outcome
	}{
		"plain":               {errDeclined, freed, stored},
		"NothingHappened":     {once.NothingHappened(errDeclined), freed, freed},
		"Final":               {once.Final(errDeclined), stored, stored},
		"Unknown":             {once.Unknown(errDeclined), left, left},
		"deep":                {fmt.Errorf("%w", once.Final(errDeclined)), stored, stored},
		"joined":              {errors.Join(once.Unknown(errDeclined)), left, left},
		"the outermost":       {once.Unknown(once.NothingHappened(errDeclined)), left, left},
		"the outermost, deep": {fmt.Errorf("%w", once.Final(fmt.Errorf("%w", once.Unknown(errDeclined)))), stored, stored},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				for i, outcome := range []once.Outcome{c.usually, c.strict} {
					b.FlushAll(t)
					var opts []once.Option
					if i == 1 {
						opts = append(opts, once.WithAtMostOnce())
					}
					d := open(t, b, opts...)
					a := d.do(fails(c.err))
					e := d.wantError(a, "declined", false, outcome)
					if !errors.Is(a.err, errDeclined) || (outcome == left) != errors.Is(e.Err, errDeclined) {
						t.Errorf("returned %v, in the Event %v", a.err, e.Err)
					}
					d.wantNext(b, outcome, i == 1)
				}
			})
		})
	}
}

// wantNext checks what the next call gets after a run with this outcome.
func (d *desk) wantNext(b redistest.Backend, outcome once.Outcome, strict bool) {
	d.t.Helper()
	next := d.do(d.charge)
	switch outcome {
	case "freed":
		d.want(next, 2, false, "executed")
	case "executed":
		d.wantError(next, "declined", true, "replayed")
		d.wantRuns(1)
	default:
		d.wantRefused(next, once.ErrInFlight, "in-flight")
		b.Elapse(d.t, leaseTTL)
		next = d.do(d.charge)
		if strict {
			d.wantRefused(next, once.ErrOutcomeUnknown, "outcome-unknown")
			d.wantRuns(1)
			return
		}
		d.want(next, 2, false, "executed")
	}
}

func TestErrorWithoutMarkIsReturnedUnchanged(t *testing.T) {
	t.Parallel()
	d := open(t, redistest.Mini(t))
	for _, err := range []error{errDeclined, fmt.Errorf("it is %w", errDeclined), &fs.PathError{Op: "open", Err: errDeclined}} {
		if a := d.do(fails(err)); a.err != err {
			t.Errorf("%#v, want %#v", a.err, err)
		}
		if a := d.do(fails(once.Unknown(err)), id(err.Error())); a.err != err {
			t.Errorf("%#v, want %#v", a.err, err)
		}
	}
	// A mark deep in the chain goes, and the rest of the chain stays.
	a := d.do(fails(fmt.Errorf("charge: %w", once.NothingHappened(&fs.PathError{Op: "open", Path: "p", Err: errDeclined}))))
	var path *fs.PathError
	if !errors.As(a.err, &path) || path.Path != "p" || !errors.Is(a.err, errDeclined) || a.err.Error() != "charge: open p: declined" {
		t.Errorf("%#v", a.err)
	}
}

func TestMarksOfNil(t *testing.T) {
	t.Parallel()
	if err := errors.Join(once.NothingHappened(nil), once.Final(nil), once.Unknown(nil)); err != nil {
		t.Errorf("%v, want nil", err)
	}
}

// The value that comes with an error is returned to the caller, and not stored.
func TestValueWithAnError(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		d := open(t, b)
		partly := func(context.Context) (receipt, error) { return receipt{Number: 9}, once.Final(errDeclined) }
		if a := d.do(partly); a.receipt.Number != 9 {
			t.Errorf("%+v", a)
		}
		d.event("executed")
		a := d.do(d.charge)
		if d.wantError(a, "declined", true, "replayed"); a.receipt != (receipt{}) {
			t.Errorf("%+v", a)
		}
	})
}

// The mark of an inner function does not count for the outer one, whose effect is there.
func TestMarksOfAnInnerDo(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for name, mark := range map[string]func(error) error{
			"itself": once.NothingHappened,
			"deep":   func(err error) error { return fmt.Errorf("inner: %w", once.NothingHappened(err)) },
		} {
			b.FlushAll(t)
			outer, inner := open(t, b, once.WithAtMostOnce()), open(t, b, once.WithAtMostOnce())
			a := outer.do(func(ctx context.Context) (receipt, error) {
				outerKey := once.FromContext(ctx).Key()
				a := inner.doIn(ctx, func(ctx context.Context) (receipt, error) {
					if once.FromContext(ctx).Key() == outerKey {
						t.Error("the inner run has the key of the outer one")
					}
					return receipt{}, mark(errDeclined)
				}, id("inner"))
				return receipt{}, fmt.Errorf("outer: %w", a.err)
			})
			if !errors.Is(a.err, errDeclined) {
				t.Errorf("%s: %v", name, a.err)
			}
			inner.event("freed")
			outer.event("executed")
			outer.wantError(outer.do(outer.charge), a.err.Error(), true, "replayed")
			outer.wantRuns(1)
		}
	})
}

// A Do with the key that its caller runs under is a duplicate.
func TestInnerDoWithTheSameKey(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		d := open(t, b)
		a := d.do(func(ctx context.Context) (receipt, error) {
			a := d.doIn(ctx, d.charge)
			d.wantRefused(a, once.ErrInFlight, "in-flight")
			return receipt{}, a.err
		})
		if a.err == nil || errors.Is(a.err, once.ErrInFlight) || a.err.Error() != once.ErrInFlight.Error() {
			t.Errorf("%+v, want the text of ErrInFlight", a)
		}
		d.event("freed")
		d.wantRuns(1)
	})
}
