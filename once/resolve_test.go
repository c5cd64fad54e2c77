package once_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

func TestResolve(t *testing.T) {
	for name, c := range map[string]struct {
		v    any
		err  error
		want func(d *desk, a answer)
	}{
		"a value": {receipt{Number: 5}, nil, func(d *desk, a answer) { d.want(a, 5, true, "replayed") }},
		"an error": {nil, once.Final(errDeclined), func(d *desk, a answer) {
			d.wantError(a, "declined", true, "replayed")
		}},
		"nothing happened": {nil, once.NothingHappened(errDeclined), func(d *desk, a answer) { d.want(a, 2, false, "executed") }},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				d := open(t, b, once.WithAtMostOnce())
				d.do(fails(once.Unknown(errDeclined)))
				key := d.event("unknown").Key
				info, err := d.locker.Inspect(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				if err := d.guard.Resolve(t.Context(), key, info.Token, c.v, c.err); !errors.Is(err, lock.ErrLive) {
					t.Errorf("while the lease lasts: %v, want ErrLive", err)
				}
				b.Elapse(t, leaseTTL)
				d.wantRefused(d.do(d.charge), once.ErrOutcomeUnknown, "outcome-unknown")
				if err := d.guard.Resolve(t.Context(), key, info.Token, c.v, c.err); err != nil {
					t.Fatal(err)
				}
				if c.v != nil {
					d.wantRefused(d.do(d.charge, input("other")), once.ErrReused, "reused")
				}
				c.want(d, d.do(d.charge))
				if err := d.guard.Resolve(t.Context(), key, info.Token, c.v, c.err); !errors.Is(err, lock.ErrChanged) {
					t.Errorf("twice: %v, want ErrChanged", err)
				}
				if info, err = d.locker.Inspect(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				err = d.guard.Resolve(t.Context(), key, info.Token, c.v, c.err)
				if !errors.Is(err, once.ErrResolution) {
					t.Errorf("a run that has its outcome: %v, want ErrResolution", err)
				}
			})
		})
	}
}

func TestResolveRefusesWhatNoFunctionReturns(t *testing.T) {
	t.Parallel()
	d := open(t, redistest.Mini(t))
	for name, c := range map[string]struct {
		v   any
		err error
	}{
		"no mark": {nil, errDeclined}, "Unknown": {nil, once.Unknown(errDeclined)},
		"no JSON": {func() {}, nil}, "too long": {strings.Repeat("x", 1<<20), nil},
	} {
		if err := d.guard.Resolve(t.Context(), "none", "none", c.v, c.err); !errors.Is(err, once.ErrResolution) {
			t.Errorf("%s: %v, want ErrResolution", name, err)
		}
	}
}

// A Guard without the journal of a run does not resolve it: the journal would not learn it.
func TestResolveWithoutTheJournal(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	d := open(t, b, once.WithJournal(newJournal(false)), once.WithAtMostOnce())
	d.do(fails(once.Unknown(errDeclined)))
	key := d.event("unknown").Key
	info, err := d.locker.Inspect(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	b.Elapse(t, leaseTTL)
	if err := open(t, b).guard.Resolve(t.Context(), key, info.Token, receipt{}, nil); !errors.Is(err, once.ErrResolution) {
		t.Errorf("%v, want ErrResolution", err)
	}
}
