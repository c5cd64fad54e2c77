package once_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/once"
)

// What becomes of a key after each error, without and with WithAtMostOnce.
func TestErrors(t *testing.T) {
	t.Parallel()
	if err := errors.Join(once.NothingHappened(nil), once.Final(nil), once.Unknown(nil)); err != nil {
		t.Errorf("marks of nil: %v, want nil", err)
	}
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
			t.Parallel()
			for i, outcome := range []once.Outcome{c.usually, c.strict} {
				b, opts := redistest.Mini(t), [][]once.Option{nil, {once.WithAtMostOnce()}}[i]
				d := open(t, b, opts...)
				a := d.do(fails(c.err))
				e := d.wantError(a, "declined", false, outcome)
				if !errors.Is(a.err, errDeclined) || (outcome == left) != errors.Is(e.Err, errDeclined) {
					t.Errorf("returned %v, in the Event %v", a.err, e.Err)
				}
				d.wantNext(b, outcome, i == 1)
			}
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
