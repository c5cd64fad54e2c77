package once_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

// The caller's cancellation does not end a run, and its deadline does.
func TestCallersContext(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		d := open(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		a := d.doIn(ctx, func(ctx context.Context) (receipt, error) { return receipt{Number: 1}, ctx.Err() })
		d.want(a, 1, false, "executed")

		ctx, cancel = context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		a = d.doIn(ctx, d.charge, id("2"))
		d.wantRefused(a, once.ErrUnavailable, "store-unavailable")
		if !errors.Is(a.err, context.DeadlineExceeded) {
			t.Errorf("%v, want DeadlineExceeded", a.err)
		}

		// The earlier one of the caller's deadline and WithMaxDuration ends the function.
		for _, until := range []time.Duration{30 * time.Minute, 90 * time.Minute} {
			ctx, cancel = context.WithTimeout(t.Context(), until)
			defer cancel()
			own := open(t, b, once.WithMaxDuration(time.Hour))
			own.doIn(ctx, func(inside context.Context) (receipt, error) {
				at, _ := inside.Deadline()
				callers, _ := ctx.Deadline()
				if isEarlier := at.Before(callers); isEarlier != (until > time.Hour) || at.After(time.Now().Add(time.Hour)) {
					t.Errorf("the deadline is %v, the caller's %v", at, callers)
				}
				return receipt{}, nil
			}, id(until.String()))
		}
	})
}

func TestWithCancel(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		d := open(t, b, once.WithCancel())
		shutdown := errors.New("the worker shuts down")
		ctx, cancel := context.WithCancelCause(t.Context())
		a := d.doIn(ctx, func(ctx context.Context) (receipt, error) {
			cancel(shutdown)
			<-ctx.Done()
			return receipt{}, context.Cause(ctx)
		})
		d.wantError(a, shutdown.Error(), false, "freed")
		a = d.doIn(ctx, d.charge)
		d.wantRefused(a, once.ErrUnavailable, "store-unavailable")
		if !errors.Is(a.err, shutdown) {
			t.Errorf("%v, want the cause of ctx", a.err)
		}
		d.wantRuns(1)
		d.want(d.do(func(ctx context.Context) (receipt, error) { return receipt{Number: 2}, ctx.Err() }), 2, false, "executed")
	})
}

// fault: client SIGSTOP longer than the TTL, then SIGCONT. The function's context tells that the lease is over although the
// timer of the lease has not fired, in whatever way the function asks.
func TestContextPastTheEndOfTheLease(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(ctx context.Context) bool{
		"Err":   func(ctx context.Context) bool { return ctx.Err() != nil },
		"Cause": func(ctx context.Context) bool { return context.Cause(ctx) != nil },
		"Done": func(ctx context.Context) bool {
			select {
			case <-ctx.Done():
				return true
			default:
				return false
			}
		},
		"a derived context": func(ctx context.Context) bool {
			derived, cancel := context.WithCancel(ctx)
			defer cancel()
			return derived.Err() != nil
		},
	} {
		for _, opts := range [][]once.Option{nil, {once.WithCancel()}} {
			synctest.Test(t, func(t *testing.T) {
				server := miniredis.NewMiniRedis()
				server.ClockTTL(true)
				defer server.Close()
				client := redistest.NewDirect(t, &redis.Options{
					Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
				}).Client
				const ttl = 10 * time.Second
				locker := lock.New(client, "test", lock.WithTTL(ttl), lock.WithoutRenewal())
				defer locker.Close(context.Background())
				d := openOn(t, locker, opts...)
				wakeUp := time.NewTimer(ttl - ttl/100 - 2*time.Millisecond) // before that of the lease
				d.do(func(ctx context.Context) (receipt, error) {
					ctx.Done() // so that it is watched
					<-wakeUp.C
					if !ask(ctx) || ctx.Err() == nil || context.Cause(ctx) != lock.ErrLost {
						t.Errorf("%s: at the end of its lease: %v, with the cause %v", name, ctx.Err(), context.Cause(ctx))
					}
					return receipt{}, nil
				})
			})
		}
	}
}

// A goroutine that the function leaves behind sees its context end.
func TestContextEndsWithTheFunction(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for _, opts := range [][]once.Option{nil, {once.WithCancel()}} {
			b.FlushAll(t)
			d := open(t, b, opts...)
			var left context.Context
			d.do(func(ctx context.Context) (receipt, error) { left = ctx; return receipt{}, nil })
			if left.Err() == nil {
				t.Error("the context has not ended")
			}
			once.FromContext(left).Retain(time.Second) // too late
			b.Elapse(t, time.Hour)
			d.event("executed")
			d.want(d.do(d.charge), 0, true, "replayed")
		}
	})
}

func TestExecution(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		d := openOn(t, newLocker(t, b.Client(t), lock.WithFencing()))
		var key string
		d.do(func(ctx context.Context) (receipt, error) {
			e := once.FromContext(ctx)
			if key = e.Key(); e.Fence() <= 0 {
				t.Errorf("fence %d", e.Fence())
			}
			e.Retain(time.Hour)
			return receipt{Number: 1}, nil
		})
		if e := d.event("executed"); e.Key != key || !strings.HasPrefix(key, "test:{") {
			t.Errorf("the key is %q, and %q in the Event", key, e.Key)
		}
		b.Elapse(t, 30*time.Minute) // half of it: the machine's time counts, too
		d.want(d.do(d.charge), 1, true, "replayed")
		b.Elapse(t, 30*time.Minute)
		d.want(d.do(d.charge), 2, false, "executed")

		var none *once.Execution
		if none.Retain(time.Hour); none.Key() != "" || none.Fence() != 0 || once.FromContext(t.Context()) != nil {
			t.Error("outside of a run there is an Execution")
		}
	})
}
