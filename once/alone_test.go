package once_test

import (
	"context"
	"testing"
	"testing/synctest"

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
