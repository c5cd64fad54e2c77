package run

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/lock"
)

// The context of a run without a journal ends with the run, at its limit, at its caller's deadline, or when its lease is
// lost, whichever is first. It tells the cause whether somebody has asked for it before or not.
func TestContextOfALease(t *testing.T) {
	t.Parallel()
	const until = 9 * time.Second // the lease is valid for, if it is not renewed
	for name, test := range map[string]struct {
		loses         bool // the lease is lost at the first renewal, after 3.3 s
		callerWaits   time.Duration
		ends, isAsked time.Duration // when the operation ends, and when its context is asked
		cause         error
	}{
		"limit before the caller's":               {false, 2 * time.Minute, 3 * time.Minute, time.Minute, context.DeadlineExceeded},
		"still runs":                              {false, 0, time.Minute, 59 * time.Second, nil},
		"ended":                                   {false, 0, time.Second, 2 * time.Second, context.Canceled},
		"ended, and long ago":                     {false, 0, time.Second, time.Hour, context.Canceled},
		"ended, and lost since":                   {true, 0, time.Second, 5 * time.Second, context.Canceled},
		"still runs, before the loss":             {true, 0, time.Minute, 3 * time.Second, nil},
		"lost":                                    {true, 0, 5 * time.Second, 4 * time.Second, lock.ErrLost},
		"lost, and asked after the end":           {true, 0, 5 * time.Second, 6 * time.Second, lock.ErrLost},
		"lost, and the limit is over":             {true, 0, 2 * time.Minute, 90 * time.Second, lock.ErrLost},
		"limit":                                   {false, 0, 2 * time.Minute, time.Minute, context.DeadlineExceeded},
		"limit, and the lease is over":            {false, 0, 2 * time.Minute, 90 * time.Second, context.DeadlineExceeded},
		"limit, and asked after the end":          {false, 0, 61 * time.Second, 90 * time.Second, context.DeadlineExceeded},
		"the caller's":                            {false, 5 * time.Second, time.Minute, 5 * time.Second, context.DeadlineExceeded},
		"lost before the caller's":                {true, 5 * time.Second, time.Minute, 4 * time.Second, lock.ErrLost},
		"lost before the caller's, which is over": {true, 5 * time.Second, time.Minute, until - time.Second, lock.ErrLost},
	} {
		for asked, before := range map[string]bool{"asked once": false, "asked before": true} {
			t.Run(name+", "+asked, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					locker := newLocker(t, &granter{loses: test.loses})
					caller := context.WithValue(t.Context(), valueKey{}, "value")
					if test.callerWaits > 0 {
						var cancel context.CancelFunc
						caller, cancel = context.WithTimeout(caller, test.callerWaits)
						defer cancel()
					}
					begin := time.Now()
					g := New("run", locker, Policy{Retention: time.Hour, MaxDuration: time.Minute})
					r := &Run{Request: Request{Key: "k", Fingerprints: []record.Fingerprint{{}}}}
					if result := g.Begin(caller, r); result.Kind != Begun {
						t.Fatalf("%+v", result)
					}
					ctx := r.Start(nil)
					wantValue := func() {
						t.Helper()
						if got := ctx.Value(valueKey{}); got != "value" {
							t.Errorf("the caller's value is %v", got)
						}
					}
					wantValue()
					if ctx.Err() != nil || r.ctx.real != nil {
						t.Error("Err has made the context")
					}
					if before {
						ctx.Done()
						wantValue()
					}
					wantCause := func(want error) {
						t.Helper()
						if got := context.Cause(ctx); got != want || (ctx.Err() != nil) != (want != nil) {
							t.Errorf("%v, with the cause %v; want %v", ctx.Err(), got, want)
						}
					}
					at := func(d time.Duration) {
						time.Sleep(time.Until(begin.Add(d)))
						synctest.Wait()
					}
					if test.isAsked < test.ends {
						at(test.isAsked)
						wantCause(test.cause)
					}
					at(test.ends)
					wantValue()
					expired := r.CutOff()
					if p := r.Phases.Operation; p.Start != begin || p.Duration != test.ends {
						t.Errorf("the operation: %+v", p)
					}
					if test.isAsked >= test.ends {
						at(test.isAsked)
						wantCause(test.cause)
					}
					if ended := test.cause == nil || test.cause == context.Canceled; !ended && expired != test.cause {
						t.Errorf("CutOff: %v, want %v", expired, test.cause)
					}
					if result := r.Conclude(Ending{How: Interrupted}); result.Kind != Own || result.Outcome != OutcomePanicked {
						t.Errorf("%+v, whatever the lease is", result)
					}
					if err := locker.Close(t.Context()); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// fault: client SIGSTOP longer than the TTL, then SIGCONT. A run's context tells that the lease is over, whether the timer
// of the lease has fired or not.
func TestContextPastTheEndOfItsLease(t *testing.T) {
	t.Parallel()
	for name, isOver := range map[string]func(r *Run, ctx context.Context) bool{
		"Err":    func(_ *Run, ctx context.Context) bool { return ctx.Err() == context.Canceled },
		"Cause":  func(_ *Run, ctx context.Context) bool { return context.Cause(ctx) == lock.ErrLost },
		"CutOff": func(r *Run, _ context.Context) bool { return r.CutOff() == lock.ErrLost },
		"Done": func(_ *Run, ctx context.Context) bool {
			select {
			case <-ctx.Done():
				return true
			default:
				return false
			}
		},
	} {
		for asked, before := range map[string]bool{"asked once": false, "asked before": true} {
			t.Run(name+", "+asked, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					locker := newLocker(t, &granter{}, lock.WithoutRenewal())
					g := New("run", locker, Policy{Retention: time.Hour, MaxDuration: time.Minute})
					var calls sync.WaitGroup
					for n := range 50 {
						calls.Go(func() {
							wakeUp := time.NewTimer(10*time.Second - 102*time.Millisecond) // before that of the lease
							r := begun(t, g, strconv.Itoa(n))
							ctx := r.Start(nil)
							if before {
								ctx.Done()
							}
							<-wakeUp.C
							if !isOver(r, ctx) || context.Cause(ctx) != lock.ErrLost {
								t.Errorf("the context does not seem to be done, the lease is over since %v", time.Since(r.lease.Until()))
							}
							r.CutOff()
							r.Conclude(Ending{How: Interrupted})
						})
					}
					calls.Wait()
					if err := locker.Close(t.Context()); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

type valueKey struct{}

// Whether a context is made depends on who asks.
func TestContextIsLazy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ask  func(context.Context)
		made bool
	}{
		"a value":          {func(ctx context.Context) { ctx.Value(valueKey{}) }, false},
		"Err":              {func(ctx context.Context) { _ = ctx.Err() }, false},
		"the deadline":     {func(ctx context.Context) { ctx.Deadline() }, false},
		"Done":             {func(ctx context.Context) { ctx.Done() }, true},
		"package context":  {func(ctx context.Context) { ctx.Value(new(int)) }, true},
		"a child that may": {func(ctx context.Context) { context.AfterFunc(ctx, func() {}) }, true},
	} {
		c := &runContext{req: &Request{caller: context.Background()}, deadline: time.Now().Add(time.Hour)}
		test.ask(c)
		made := c.real != nil
		expired := c.end(time.Now())
		if made != test.made || c.real != nil != made || expired != nil {
			t.Errorf("%s: made %v, want %v; then %v, %v", name, made, test.made, c.real, expired)
		}
		if !errors.Is(c.Err(), context.Canceled) || !strings.HasPrefix(c.String(), "onceguard.") {
			t.Errorf("%s: %v, %v", name, c, c.Err())
		}
	}
}

// What is sent for a run has the values of the caller's context and never ends, whatever the caller does.
func TestDetached(t *testing.T) {
	t.Parallel()
	own := new(int) // a key of the same type as those of package context
	caller, cancel := context.WithCancelCause(context.WithValue(context.WithValue(t.Context(), valueKey{}, "value"), own, "own"))
	cancel(errors.New("the caller has gone"))
	detached := (&Request{caller: caller}).detached()
	_, hasDeadline := detached.Deadline()
	if detached.Done() != nil || detached.Err() != nil || hasDeadline {
		t.Errorf("Done %v, Err %v, Deadline %v; want none", detached.Done(), detached.Err(), hasDeadline)
	}
	for name, ctx := range map[string]context.Context{"itself": detached, "a child": context.WithValue(detached, new(int), "of the child")} {
		if cause := context.Cause(ctx); cause != nil {
			t.Errorf("%s has the cause %v", name, cause)
		}
		if ctx.Value(valueKey{}) != "value" || ctx.Value(own) != "own" {
			t.Errorf("%s has lost a value: %v, %v", name, ctx.Value(valueKey{}), ctx.Value(own))
		}
	}
	if text := fmt.Sprint(detached); text != "onceguard.detached" {
		t.Errorf("it prints as %q", text)
	}
}

// The operation finds its run by the door's key, before and after the context is made, and in contexts made of it.
func TestContextValue(t *testing.T) {
	t.Parallel()
	type key struct{}
	req := &Request{caller: context.WithValue(t.Context(), key{}, "outer"), ContextKey: key{}, ContextValue: "inner"}
	c := &runContext{req: req, deadline: time.Now().Add(time.Hour)}
	for _, when := range []string{"before", "after"} {
		child, cancel := context.WithCancel(c)
		if c.Value(key{}) != "inner" || child.Value(key{}) != "inner" {
			t.Errorf("%s: %v, %v", when, c.Value(key{}), child.Value(key{}))
		}
		cancel()
	}
	c.end(time.Now())
}
