package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// inRun calls do in a protected handler, and after in the same bubble of time when the handler has returned.
func inRun(
	t *testing.T, limit time.Duration, outer context.Context,
	do func(t *testing.T, ctx context.Context, store *canned), after func(t *testing.T, ctx context.Context),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var run context.Context
		store := new(canned)
		protected, _ := protect(t, store, func(w http.ResponseWriter, r *http.Request) {
			run = r.Context()
			do(t, run, store)
			w.WriteHeader(http.StatusCreated)
		}, middleware.WithMaxDuration(limit))
		r := httptest.NewRequestWithContext(outer, http.MethodPost, "/mine", nil)
		r.Header.Set("Idempotency-Key", "mine")
		protected.ServeHTTP(&discarded{header: http.Header{}}, r)
		if run == nil {
			t.Fatal("the handler has not run")
		}
		if after != nil {
			after(t, run)
		}
	})
}

func wantEnd(t *testing.T, what string, ctx context.Context, err, cause error) {
	t.Helper()
	if got := ctx.Err(); got != err {
		t.Errorf("%s: Err %v, want %v", what, got, err)
	}
	if got := context.Cause(ctx); !errors.Is(got, cause) || (cause == nil) != (got == nil) {
		t.Errorf("%s: Cause %v, want %v", what, got, cause)
	}
	select {
	case <-ctx.Done():
		if err == nil {
			t.Errorf("%s: Done is closed", what)
		}
	default:
		if err != nil {
			t.Errorf("%s: Done is not closed", what)
		}
	}
}

const limit = time.Minute

// The client of a run with a journal has disconnected. The run goes on, so its context has no cause, even though
// context.Cause before Go 1.26 looks for one in the parents before it calls Err.
func TestRunContextHidesTheClientsCause(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, redistest.Mini(t).Client(t))
	ctx, disconnect := context.WithCancel(t.Context())
	disconnect()
	ran := false
	h := middleware.Idempotency(locker, fixedKey, middleware.WithJournal(newJournal(true)))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ran = true
			if err := context.Cause(r.Context()); err != nil {
				t.Errorf("Cause %v, want nil", err)
			}
			wantEnd(t, "a client that has disconnected", r.Context(), nil, nil)
			w.WriteHeader(http.StatusCreated)
		}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil))
	if !ran {
		t.Error("the handler has not run")
	}
}

func TestRunContextAtItsDeadline(t *testing.T) {
	t.Parallel()
	for name, asked := range map[string]func(context.Context){
		"nobody asked":   func(context.Context) {},
		"Err was asked":  func(ctx context.Context) { _ = ctx.Err() },
		"Done was asked": func(ctx context.Context) { _ = ctx.Done() },
		"a child is over": func(ctx context.Context) {
			_, cancel := context.WithCancel(ctx)
			cancel()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inRun(t, limit, context.Background(), func(t *testing.T, ctx context.Context, _ *canned) {
				asked(ctx)
				deadline, ok := ctx.Deadline()
				if left := time.Until(deadline); !ok || left != limit {
					t.Errorf("Deadline in %v, %v, want %v", left, ok, limit)
				}
				if err := ctx.Err(); err != nil {
					t.Errorf("at first: %v", err)
				}
				time.Sleep(limit - time.Nanosecond)
				if err := ctx.Err(); err != nil {
					t.Errorf("just before: %v", err)
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				wantEnd(t, "at the deadline", ctx, context.DeadlineExceeded, context.DeadlineExceeded)
			}, func(t *testing.T, ctx context.Context) {
				wantEnd(t, "after the run", ctx, context.DeadlineExceeded, context.DeadlineExceeded)
			})
		})
	}
}

func TestRunContextWakesAtItsDeadline(t *testing.T) {
	t.Parallel()
	inRun(t, limit, context.Background(), func(t *testing.T, ctx context.Context, _ *canned) {
		start := time.Now()
		child, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		plain, cancelPlain := context.WithCancel(ctx)
		defer cancelPlain()
		called := make(chan time.Time, 1)
		context.AfterFunc(ctx, func() { called <- time.Now() })
		<-ctx.Done()
		<-child.Done()
		<-plain.Done()
		if at := <-called; at.Sub(start) != limit || time.Since(start) != limit {
			t.Errorf("woken after %v, AfterFunc after %v, want %v", time.Since(start), at.Sub(start), limit)
		}
		for name, c := range map[string]context.Context{"itself": ctx, "WithTimeout": child, "WithCancel": plain} {
			wantEnd(t, name, c, context.DeadlineExceeded, context.DeadlineExceeded)
		}
	}, nil)
}

func TestRunContextHasTheOuterDeadline(t *testing.T) {
	t.Parallel()
	inRun(t, limit, deadlineIn{time.Second}, func(t *testing.T, ctx context.Context, _ *canned) {
		start := time.Now()
		<-ctx.Done()
		if got := time.Since(start); got != time.Second {
			t.Errorf("woken after %v, want a second", got)
		}
		wantEnd(t, "at the outer deadline", ctx, context.DeadlineExceeded, context.DeadlineExceeded)
	}, nil)
}

// deadlineIn is a context with a deadline that is never done itself.
type deadlineIn struct{ d time.Duration }

func (c deadlineIn) Deadline() (time.Time, bool) { return time.Now().Add(c.d), true }
func (deadlineIn) Done() <-chan struct{}         { return nil }
func (deadlineIn) Err() error                    { return nil }
func (deadlineIn) Value(any) any                 { return nil }

func TestRunContextOfALostLease(t *testing.T) {
	t.Parallel()
	for name, asked := range map[string]func(*testing.T, context.Context) context.Context{
		"nobody asked":   func(_ *testing.T, ctx context.Context) context.Context { return ctx },
		"Err was asked":  func(_ *testing.T, ctx context.Context) context.Context { _ = ctx.Err(); return ctx },
		"Done was asked": func(_ *testing.T, ctx context.Context) context.Context { ctx.Done(); return ctx },
		"all was asked": func(t *testing.T, ctx context.Context) context.Context {
			wantEnd(t, "at first", ctx, nil, nil)
			return ctx
		},
		"of a child": func(_ *testing.T, ctx context.Context) context.Context {
			child, cancel := context.WithCancel(ctx)
			context.AfterFunc(child, cancel)
			return child
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inRun(t, limit, context.Background(), func(t *testing.T, ctx context.Context, store *canned) {
				ctx = asked(t, ctx)
				store.lost.Store(true)
				time.Sleep(limit / 2)
				synctest.Wait()
				wantEnd(t, "when it is lost", ctx, context.Canceled, lock.ErrLost)
				time.Sleep(limit)
				wantEnd(t, "after the deadline", ctx, context.Canceled, lock.ErrLost)
			}, nil)
		})
	}
}

func TestRunContextOfALostLeaseAfterTheRun(t *testing.T) {
	t.Parallel()
	inRun(t, limit, context.Background(), func(_ *testing.T, _ context.Context, store *canned) {
		store.lost.Store(true)
		time.Sleep(limit / 2)
	}, func(t *testing.T, ctx context.Context) {
		wantEnd(t, "after", ctx, context.Canceled, lock.ErrLost)
	})
}

// If both the deadline has passed and the lease is over before the first look at the context, its cause is what came first.
func TestRunContextHasTheFirstCause(t *testing.T) {
	t.Parallel()
	t.Run("the deadline", func(t *testing.T) {
		t.Parallel()
		inRun(t, limit, context.Background(), func(t *testing.T, ctx context.Context, _ *canned) {
			time.Sleep(2 * limit) // it is not renewed behind the deadline
			wantEnd(t, "late", ctx, context.DeadlineExceeded, context.DeadlineExceeded)
		}, nil)
	})
	t.Run("the loss, shortly before", func(t *testing.T) {
		t.Parallel()
		inRun(t, limit, context.Background(), func(t *testing.T, ctx context.Context, store *canned) {
			time.Sleep(limit - 5*time.Second) // a lease of 10 s is renewed before the end, and would last until after it
			store.lost.Store(true)
			time.Sleep(6 * time.Second)
			wantEnd(t, "a bit late", ctx, context.Canceled, lock.ErrLost)
		}, nil)
	})
	t.Run("the loss", func(t *testing.T) {
		t.Parallel()
		inRun(t, limit, context.Background(), func(t *testing.T, ctx context.Context, store *canned) {
			store.lost.Store(true)
			time.Sleep(2 * limit)
			wantEnd(t, "late", ctx, context.Canceled, lock.ErrLost)
		}, nil)
	})
}

func TestRunContextAfterTheRun(t *testing.T) {
	t.Parallel()
	for name, asked := range map[string]func(context.Context){
		"nobody asked":   func(context.Context) {},
		"Done was asked": func(ctx context.Context) { ctx.Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inRun(t, limit, context.Background(), func(_ *testing.T, ctx context.Context, _ *canned) {
				asked(ctx)
			}, func(t *testing.T, ctx context.Context) {
				time.Sleep(2 * limit)
				wantEnd(t, "long after", ctx, context.Canceled, context.Canceled)
				child, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				wantEnd(t, "a child", child, context.Canceled, context.Canceled)
			})
		})
	}
	t.Run("past its deadline, and nobody asked", func(t *testing.T) {
		t.Parallel()
		inRun(t, limit, context.Background(), func(_ *testing.T, _ context.Context, _ *canned) {
			time.Sleep(limit)
		}, func(t *testing.T, ctx context.Context) {
			wantEnd(t, "after", ctx, context.DeadlineExceeded, context.DeadlineExceeded)
		})
	})
}

// A lease that is left to run out does not end the run's context, which ended before.
func TestRunContextAfterAPanic(t *testing.T) {
	t.Parallel()
	for name, asked := range map[string]func(context.Context){
		"nobody asked":   func(context.Context) {},
		"Done was asked": func(ctx context.Context) { ctx.Done() },
	} {
		for _, wait := range []time.Duration{0, limit} {
			t.Run(fmt.Sprint(name, ", after ", wait), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var run context.Context
					_, send := protect(t, new(canned), func(_ http.ResponseWriter, r *http.Request) {
						run = r.Context()
						asked(run)
						panic(http.ErrAbortHandler)
					})
					func() {
						defer func() { _ = recover() }()
						send(&discarded{header: http.Header{}}, 10)
					}()
					time.Sleep(wait)
					wantEnd(t, "after", run, context.Canceled, context.Canceled)
				})
			})
		}
	}
}

func TestRunIsRenewedUntilItsLimit(t *testing.T) {
	t.Parallel()
	inRun(t, limit, context.Background(), func(t *testing.T, _ context.Context, store *canned) {
		time.Sleep(limit - time.Nanosecond)
		before := store.renewed.Load()
		time.Sleep(limit)
		if after := store.renewed.Load(); before < 10 || after != before {
			t.Errorf("%d renewals before the limit, %d behind it", before, after-before)
		}
	}, nil)
}

func TestRunContextHasTheValues(t *testing.T) {
	t.Parallel()
	type name struct{}
	outer := context.WithValue(context.Background(), name{}, "outer")
	check := func(t *testing.T, ctx context.Context) {
		t.Helper()
		child := context.WithValue(ctx, limit, 1)
		for _, c := range []context.Context{ctx, child, context.WithoutCancel(child)} {
			if e := middleware.FromContext(c); e.Key() == "" || c.Value(name{}) != "outer" {
				t.Errorf("%v: execution %v, value %v", c, e, c.Value(name{}))
			}
		}
	}
	inRun(t, limit, outer, func(t *testing.T, ctx context.Context, _ *canned) {
		check(t, ctx)
		ctx.Done()
		check(t, ctx)
	}, check)
}

// For the race detector.
func TestRunContextIsForManyGoroutines(t *testing.T) {
	t.Parallel()
	for range 50 {
		var others sync.WaitGroup
		inRun(t, limit, context.Background(), func(t *testing.T, ctx context.Context, _ *canned) {
			for _, ask := range []func(){
				func() { <-ctx.Done() },
				func() { _ = context.Cause(ctx) },
				func() { middleware.FromContext(ctx).Keep() },
				func() { ctx.Value(limit) },
				func() {
					child, cancel := context.WithTimeout(ctx, time.Hour)
					defer cancel()
					<-child.Done()
				},
			} {
				others.Go(ask)
			}
		}, func(t *testing.T, ctx context.Context) {
			others.Wait()
			wantEnd(t, "after", ctx, context.Canceled, context.Canceled)
		})
	}
}

// An outer middleware may replace the request's context in place, as chi's render.Status does, once the request is over.
// What a run has left behind, such as a hook of the Redis client, still sees the values of the first one.
func TestValuesOutliveTheRequest(t *testing.T) {
	t.Parallel()
	type name struct{}
	var left context.Context
	once := middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), keyfunc.Header("Idempotency-Key"))
	h := once(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { left = r.Context() }))
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Idempotency-Key", "k")
	r = r.WithContext(context.WithValue(r.Context(), name{}, "arrived"))
	h.ServeHTTP(httptest.NewRecorder(), r)
	*r = *r.WithContext(context.WithValue(context.Background(), name{}, "replaced"))
	if got := left.Value(name{}); got != "arrived" {
		t.Errorf("value %v, want that of the context that the request came with", got)
	}
}
