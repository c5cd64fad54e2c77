package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// outerDeadline puts a context with a deadline around the middleware, and nothing that answers when it has passed.
func outerDeadline(d time.Duration) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), d)
			defer cancel()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

// A handler that returns without a response after its time is over never counts as a success, whichever limit it was.
func TestSilenceIsNoSuccess(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		say   func(*middleware.Execution)
		first middleware.Outcome
		again middleware.Outcome
	}{
		"nothing": {func(*middleware.Execution) {}, middleware.Unknown, middleware.InFlight},
		"discard": {func(e *middleware.Execution) { _ = e.Discard() }, middleware.Freed, middleware.Freed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 20 {
				s := serve(t, redistest.Mini(t), func(_ http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					test.say(middleware.FromContext(r.Context()))
				}, middleware.WithAtMostOnce())
				s.outer = outerDeadline(300 * time.Millisecond)
				first := s.send()
				if first.problem() == "store-unavailable" { // the machine was too slow for the run to begin in time
					s.event()
					continue
				}
				s.want(first, http.StatusGatewayTimeout, test.first)
				if a := s.send(); a.status == http.StatusOK {
					t.Error("the retry got 200")
				}
				if e := s.event(); e.Outcome != test.again && e.Outcome != middleware.StoreUnavailable { // as above
					t.Errorf("retry: %+v, want %s", e, test.again)
				}
			}
		})
	}
}

// The 504 has no header of the handler's, and keeps those of outer middlewares.
func TestSilenceHasNoHeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, send := protect(t, new(canned), func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Header().Set("Location", "/payments/1")
			w.Header().Set("X-Request-Id", "another")
			w.Header().Set(http.TrailerPrefix+"X-Sum", "abc")
			<-r.Context().Done()
		}, middleware.WithMaxDuration(time.Second))
		w := &discarded{header: http.Header{"X-Request-Id": {"today"}}}
		send(w, 10)
		if want := "map[X-Request-Id:[today]]"; w.status != http.StatusGatewayTimeout || fmt.Sprint(w.header) != want {
			t.Errorf("%d %v, want 504 and %s", w.status, w.header, want)
		}
	})
}

// endless is a context whose deadline passes without closing Done.
type endless struct{ context.Context }

func (endless) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }
func (endless) Done() <-chan struct{}       { return nil }
func (endless) Err() error                  { return nil }

func TestSilenceInAContextWithoutDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		protected, _ := protect(t, new(canned), func(http.ResponseWriter, *http.Request) {})
		w := &discarded{header: http.Header{}}
		returned := inBubble(func(w http.ResponseWriter, _ int) {
			r := httptest.NewRequestWithContext(endless{t.Context()}, http.MethodPost, "/mine", nil)
			r.Header.Set("Idempotency-Key", "mine")
			protected.ServeHTTP(w, r)
		}, w)
		if !returned() || w.status != http.StatusGatewayTimeout {
			t.Errorf("returned %v, status %d", returned(), w.status)
		}
	})
}

// A request whose deadline passed before the handler began does not run.
func TestNoTimeForARun(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, payOnce(), middleware.WithAtMostOnce())
		s.outer = outerDeadline(-time.Second)
		s.want(s.send(), http.StatusServiceUnavailable, middleware.StoreUnavailable)
		s.wantRuns(0)
		s.awaitFree(b)
	})
}

// An unknown outcome is kept until the retention has passed, however short the handler wanted its response to be replayed.
func TestUnknownOutcomeOutlivesRetain(t *testing.T) {
	for name, test := range map[string]struct {
		opts []middleware.Option
		want string
	}{
		"by default":   {nil, "response-not-stored"},
		"at most once": {[]middleware.Option{middleware.WithAtMostOnce()}, "outcome-unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
					middleware.FromContext(r.Context()).Retain(time.Minute)
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				}, test.opts...)
				_, _ = s.try(s.request(noRetry))
				s.event()
				b.Elapse(t, time.Hour)
				s.wantRefused(s.send(), http.StatusConflict, middleware.OutcomeUnknown, test.want)
				s.wantRuns(1)
			})
		})
	}
}

func TestAtMostOnceRetentionIsBounded(t *testing.T) {
	t.Parallel()
	defer func() {
		if got, _ := recover().(string); !strings.Contains(got, "WithRetention") {
			t.Errorf("panic %q, want one that names the option", got)
		}
	}()
	middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), keyfunc.Body(),
		middleware.WithAtMostOnce(), middleware.WithRetention(11*365*24*time.Hour))
}

// conformance: 42
func TestCookieInATrailer(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	s := serve(t, b, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Set-Cookie")
		_, _ = w.Write([]byte("body"))
		w.Header().Set("Set-Cookie", "sid=secret")
		w.Header().Set(http.TrailerPrefix+"Set-Cookie", "sid=secret")
	})
	e := s.want(s.send(), http.StatusOK, middleware.CookiesDropped)
	if value, _ := b.Raw(t, e.Key); strings.Contains(value, "secret") {
		t.Errorf("stored: %q", value)
	}
}

// conformance: 47
func TestHijackThatFailsLetsNothingOut(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		if _, _, err := http.NewResponseController(w).Hijack(); err == nil {
			t.Error("hijacked what cannot be")
		}
		if err := middleware.FromContext(r.Context()).Discard(); err != nil {
			t.Errorf("Discard: %v", err)
		}
	})
	s.outer = func(next http.Handler) http.Handler { return http.TimeoutHandler(next, time.Minute, "") }
	s.want(s.send(), http.StatusServiceUnavailable, middleware.Freed)
}

// If the innermost writer cannot hijack or flush, neither middleware of a nested pair sends anything for it.
//
// conformance: 45, 47
func TestWhatFailsBelowTheOuterOneLetsNothingOut(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(*http.ResponseController) error{
		"flush":  (*http.ResponseController).Flush,
		"hijack": func(rc *http.ResponseController) error { _, _, err := rc.Hijack(); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locker := newLocker(t, redistest.Mini(t).Client(t))
			inner := middleware.Idempotency(locker, keyfunc.Compose(keyfunc.Header("Idempotency-Key"), keyfunc.Anonymous()))(
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(http.StatusServiceUnavailable)
					if err := ask(http.NewResponseController(w)); !errors.Is(err, http.ErrNotSupported) {
						t.Errorf("%v, want %v", err, http.ErrNotSupported)
					}
					if err := middleware.FromContext(r.Context()).Discard(); err != nil {
						t.Errorf("Discard: %v", err)
					}
				}))
			s := serveKeyed(t, locker, keyfunc.Header("Idempotency-Key"), inner.ServeHTTP)
			s.outer = func(next http.Handler) http.Handler { return http.TimeoutHandler(next, time.Minute, "") }
			s.want(s.send(), http.StatusServiceUnavailable, middleware.Freed)
		})
	}
}

// A header with more names and values than a record may have is sent, and cannot be replayed.
func TestResponseOfManyFields(t *testing.T) {
	t.Parallel()
	for values, want := range map[int]middleware.Outcome{9_998: middleware.Executed, 9_999: middleware.NotStored} {
		observed := make(chan middleware.Outcome, 1)
		locker := newLocker(t, redistest.Mini(t).Client(t))
		protected := middleware.Idempotency(locker, keyfunc.Header("Idempotency-Key"),
			middleware.WithObserver(func(_ context.Context, e middleware.Event) { observed <- e.Outcome }),
		)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			w.Header()["X"] = make([]string, values)
			w.WriteHeader(http.StatusNoContent)
		}))
		send := func() *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			protected.ServeHTTP(w, r)
			return w
		}
		if w := send(); w.Code != http.StatusNoContent || len(w.Header()["X"]) != values {
			t.Errorf("%d values: answered %d with %d", values, w.Code, len(w.Header()["X"]))
		}
		if got := <-observed; got != want {
			t.Errorf("%d values: %v, want %v", values, got, want)
		}
		second := send().Code
		if stored := want == middleware.Executed; stored != (second == http.StatusNoContent) || !stored && second != 409 {
			t.Errorf("%d values: the second time %d", values, second)
		}
		<-observed
	}
}
