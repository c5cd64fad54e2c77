package once_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

// A value that cannot be stored is returned, and the key is not freed.
func TestValueThatCannotBeStored(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		const longest = 1<<20 - len(`{"Number":1,"Note":""}`)
		d := open(t, b)
		d.want(d.do(noted(longest)), 1, false, "executed")
		d.want(d.do(d.charge), 1, true, "replayed")

		if e := d.want(d.do(noted(longest+1), id("2")), 1, false, "not-stored"); e.Err == nil {
			t.Error("the Event has no error")
		}
		d.wantRefused(d.do(d.charge, id("2")), once.ErrNotStored, "not-replayable")
		d.wantRefused(d.do(d.charge, id("2"), input("other")), once.ErrReused, "reused")

		if v, replayed, err := as(d, "3", make(chan int)); v == nil || replayed || err != nil {
			t.Errorf("no JSON: %v, %v, %v", v, replayed, err)
		}
		if e := d.event("not-stored"); e.Err == nil {
			t.Error("no JSON: the Event has no error")
		}
		d.wantRefused(d.do(d.charge, id("3"), input(nil)), once.ErrNotStored, "not-replayable")
		d.wantRuns(3)
	})
}

// noted returns a function that returns a receipt with a note of n bytes.
func noted(n int) function {
	return func(context.Context) (receipt, error) { return receipt{Number: 1, Note: strings.Repeat("x", n)}, nil }
}

// A long text of an error is cut.
func TestLongError(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		d, text := open(t, b), strings.Repeat("x", 1<<20)
		d.wantError(d.do(fails(errors.New(text+"yz"))), text+"yz", false, "freed")
		d.wantError(d.do(fails(once.Final(errors.New(text+"yz")))), text+"yz", false, "executed")
		d.wantError(d.do(d.charge), text, true, "replayed")
	})
}

// What is stored for one type is never a run of another.
func TestStoredValueThatTCannotTake(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		d := open(t, b)
		d.want(d.do(noted(1)), 1, false, "executed")
		type other struct{ Number, Note int } // json.Unmarshal sets Number, and fails at Note
		v, replayed, err := as(d, "1", other{7, 7})
		if v != (other{}) || replayed || !errors.Is(err, once.ErrUnreadable) {
			t.Errorf("%v, %v, %v", v, replayed, err)
		}
		if e := d.event("unreadable"); e.Err == nil || e.Size != 0 {
			t.Errorf("%+v", e)
		}
		if !strings.Contains(err.Error(), "other: *json.UnmarshalTypeError") || strings.Count(err.Error(), "unreadable") != 1 {
			t.Errorf("%v", err)
		}
		d.want(d.do(d.charge), 1, true, "replayed")
		d.wantRuns(1)
	})
}

func TestRedisIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locker := newLocker(t, server.Client(t), lock.WithOpTimeout(100*time.Millisecond))
	closed, open := openOn(t, locker), openOn(t, locker, once.WithFailOpen())
	server.Pause(t)
	a := closed.do(closed.charge)
	closed.wantRefused(a, once.ErrUnavailable, "store-unavailable")
	if !errors.Is(a.err, context.DeadlineExceeded) {
		t.Errorf("%v, want DeadlineExceeded", a.err)
	}
	closed.wantRuns(0)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		a = open.doIn(ctx, func(ctx context.Context) (receipt, error) {
			if once.FromContext(ctx) != nil || !errors.Is(ctx.Err(), context.Canceled) {
				t.Errorf("an unprotected function has %v and %v", once.FromContext(ctx), ctx.Err())
			}
			return receipt{Number: 1}, once.Unknown(errDeclined)
		})
		if e := open.wantError(a, "declined", false, "unprotected"); a.err != errDeclined || e.Err == nil || e.Run.Start.IsZero() {
			t.Errorf("%+v, %+v", a, e)
		}
	}
	open.wantRuns(2)
}
