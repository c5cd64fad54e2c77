package once_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
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
		if e := d.want(d.do(d.charge), 1, false, once.Executed); e.Err != nil || e.Claim.Duration != 0 {
			d.t.Errorf("%+v, want no error", e)
		}
		d.want(d.do(d.charge), 1, true, once.Replayed)
		d.wantRefused(d.do(d.charge, input("other")), once.ErrReused, once.Reused)
		d.want(d.do(d.charge, scope("bob")), 2, false, once.Executed)
		d.wantError(d.do(fails(once.NothingHappened(errDeclined)), id("2")), "declined", false, once.Freed)
		d.want(d.do(d.charge, id("2")), 4, false, once.Executed)
	})
}

// The row is the claim: a duplicate is in flight until the run's limit, and then the outcome is unknown.
func TestAloneInFlight(t *testing.T) {
	alone(t, func(d *desk, j *memJournal) {
		d.wantError(d.do(fails(once.Unknown(errDeclined))), "declined", false, once.Unsure)
		d.wantRefused(d.do(d.charge), once.ErrInFlight, once.InFlight)
		d.wantRefused(d.do(d.charge, input("other")), once.ErrReused, once.Reused)
		time.Sleep(time.Minute)
		j.overdue()
		a := d.do(d.charge)
		var refused *once.Refused
		if e := d.event(once.OutcomeUnknown); !errors.As(a.err, &refused) || refused.Reason != once.ErrOutcomeUnknown {
			d.t.Errorf("%+v, %+v", a, e)
		}
		d.wantRuns(1)
	})
}

// A duplicate that waits polls the journal. A poll that fails does not end the wait.
func TestAloneWaits(t *testing.T) {
	alone(t, func(d *desk, j *memJournal) {
		begun, done := make(chan struct{}), make(chan answer)
		go func() {
			done <- d.do(func(ctx context.Context) (receipt, error) {
				close(begun)
				time.Sleep(5 * time.Second)
				return d.charge(ctx)
			})
		}()
		<-begun
		j.failLooks(2)
		start := time.Now()
		a := d.do(d.charge) // begins to wait, and ends after the first
		if took := time.Since(start); took < 5*time.Second || took > 7*time.Second {
			d.t.Errorf("it waited for %v", took)
		}
		d.want(<-done, 1, false, once.Executed)
		if e := d.want(a, 1, true, once.Replayed); e.Wait.Duration == 0 {
			d.t.Errorf("%+v, want a Wait", e)
		}
	}, once.WithWait(10*time.Second))
}

func TestAloneWaitsInVain(t *testing.T) {
	alone(t, func(d *desk, j *memJournal) {
		first := func(err error) (done chan answer) {
			done = make(chan answer)
			begun := make(chan struct{})
			go func() {
				done <- d.do(func(context.Context) (receipt, error) {
					close(begun)
					time.Sleep(15 * time.Second)
					return receipt{}, err
				})
			}()
			<-begun
			return done
		}
		done := first(once.NothingHappened(errDeclined))
		j.failLooks(1000)
		e := d.wantRefused(d.do(d.charge), once.ErrInFlight, once.InFlight) // after 10 s
		if !errors.Is(e.Err, errLook) {
			d.t.Errorf("Err %v, want that of the last look", e.Err)
		}
		j.failLooks(0)
		refused := make(chan answer)
		go func() { refused <- d.do(d.charge) }()
		d.wantError(<-done, "declined", false, once.Freed)
		d.wantRefused(<-refused, once.ErrFailed, once.NotReplayable)
		d.wantRuns(1)
	}, once.WithWait(10*time.Second))
}

func TestAloneResolve(t *testing.T) {
	alone(t, func(d *desk, j *memJournal) {
		d.do(fails(once.Unknown(errDeclined)))
		e := d.event(once.Unsure)
		token := j.rows[e.Key].Token
		if err := d.guard.Resolve(d.t.Context(), e.Key, token, receipt{Number: 5}, nil); !errors.Is(err, lock.ErrLive) {
			d.t.Errorf("before its limit: %v, want ErrLive", err)
		}
		j.overdue()
		if err := d.guard.Resolve(d.t.Context(), e.Key, token, receipt{Number: 5}, nil); err != nil {
			d.t.Fatal(err)
		}
		d.want(d.do(d.charge), 5, true, once.Replayed)
	})
}

// What a middleware's Resolve frees, the operators' command and page free. A response cannot be a function's result.
func TestAloneFreedByTheOtherDoor(t *testing.T) {
	alone(t, func(d *desk, j *memJournal) {
		d.do(fails(once.Unknown(errDeclined)))
		e := d.event(once.Unsure)
		j.overdue()
		m := middleware.New(d.locker, keyfunc.Anonymous(), middleware.WithJournal(j))
		resolve := func(r middleware.Resolution) error { return m.Resolve(d.t.Context(), e.Key, j.rows[e.Key].Token, r) }
		if err := resolve(middleware.Responded(201, nil, nil)); !errors.Is(err, middleware.ErrResolution) {
			d.t.Errorf("a response: %v, want ErrResolution", err)
		}
		if err := resolve(middleware.NothingHappened()); err != nil {
			d.t.Fatal(err)
		}
		d.want(d.do(d.charge), 2, false, once.Executed)
		if seen, err := m.Inspect(d.t.Context(), e.Key); err != nil || seen.Stored == nil || seen.Run != middleware.FunctionRun {
			d.t.Errorf("Inspect: %+v, %v", seen.Stored, err)
		}
	})
}

func TestAloneIsClosed(t *testing.T) {
	alone(t, func(d *desk, _ *memJournal) {
		if err := d.locker.Close(context.Background()); err != nil {
			d.t.Fatal(err)
		}
		d.wantRefused(d.do(d.charge), once.ErrUnavailable, once.StoreUnavailable)
		d.wantRuns(0)
	})
}

func TestAloneNeedsAnIntentJournal(t *testing.T) {
	t.Parallel()
	none := lock.None("test")
	wantPanic(t, "once.WithJournal", func() { once.New(none) })
	wantPanic(t, "once.WithJournal", func() { once.New(none, once.WithJournal(newJournal(false))) })
	wantPanic(t, "once.WithAtMostOnce", func() {
		once.New(none, once.WithJournal(newJournal(true)), once.WithAtMostOnce())
	})
}
