package once_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/once"
)

// alone runs test at a desk without Redis, in a bubble.
func alone(t *testing.T, test func(d *desk, j *memJournal), opts ...once.Option) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(true)
		d := openAlone(t, j, opts...)
		test(d, j)
		if err := d.locker.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestAlone(t *testing.T) {
	alone(t, func(d *desk, _ *memJournal) {
		if e := d.want(d.do(d.charge), 1, false, "executed"); e.Err != nil || e.Claim.Duration != 0 {
			d.t.Errorf("%+v, want no error", e)
		}
		d.want(d.do(d.charge), 1, true, "replayed")
		d.wantRefused(d.do(d.charge, input("other")), once.ErrReused, "reused")
		d.want(d.do(d.charge, scope("bob")), 2, false, "executed")
		d.wantError(d.do(fails(once.NothingHappened(errDeclined)), id("2")), "declined", false, "freed")
		d.want(d.do(d.charge, id("2")), 4, false, "executed")
	})
}

// What a middleware's Resolve frees, the operators' command and page free. A response cannot be a function's result.
func TestAloneFreedByTheOtherDoor(t *testing.T) {
	alone(t, func(d *desk, j *memJournal) {
		d.do(fails(once.Unknown(errDeclined)))
		e := d.event("unknown")
		j.overdue()
		m := middleware.New(d.locker, keyfunc.Anonymous(), middleware.WithJournal(j))
		resolve := func(r middleware.Resolution) error { return m.Resolve(d.t.Context(), e.Key, j.rows[e.Key].Token, r) }
		if err := resolve(middleware.Responded(201, nil, nil)); !errors.Is(err, middleware.ErrResolution) {
			d.t.Errorf("a response: %v, want ErrResolution", err)
		}
		if err := resolve(middleware.NothingHappened()); err != nil {
			d.t.Fatal(err)
		}
		d.want(d.do(d.charge), 2, false, "executed")
		if seen, err := m.Inspect(d.t.Context(), e.Key); err != nil || seen.Stored == nil || seen.Run != middleware.FunctionRun {
			d.t.Errorf("Inspect: %+v, %v", seen.Stored, err)
		}
	})
}
