package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// isRefusal is the f of WithNothingHappened that its doc comment shows.
func isRefusal(status int, header http.Header) bool {
	return status == http.StatusServiceUnavailable && header.Get("Retry-After") != ""
}

// refuse answers what isRefusal is true for.
func refuse(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
}

// A response for which WithNothingHappened says so frees the key in every mode, unless the run has said or done something that
// speaks against it. Then it counts as without the option.
func TestWithNothingHappened(t *testing.T) {
	t.Parallel()
	modes := map[string]func() []middleware.Option{
		"at most once": func() []middleware.Option { return []middleware.Option{middleware.WithAtMostOnce()} },
		"intent":       func() []middleware.Option { return []middleware.Option{middleware.WithJournal(newJournal(true))} },
		"all stored":   func() []middleware.Option { return []middleware.Option{middleware.WithStored(middleware.StoreAll)} },
		"shadow": func() []middleware.Option {
			return []middleware.Option{middleware.WithAtMostOnce(), middleware.WithShadow()}
		},
	}
	exec := func(r *http.Request) *middleware.Execution { return middleware.FromContext(r.Context()) }
	for name, c := range map[string]struct {
		handle http.HandlerFunc
		first  middleware.Outcome // with all responses stored; empty if it frees the key
	}{
		"refusal": {func(w http.ResponseWriter, _ *http.Request) { refuse(w) }, ""},
		"header after the status": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			w.Header().Set("Retry-After", "1")
		}, middleware.Executed},
		"header removed after the status": {func(w http.ResponseWriter, _ *http.Request) {
			refuse(w)
			w.Header().Del("Retry-After")
		}, ""},
		"another status": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusBadGateway)
		}, middleware.Executed},
		"Discard": {func(w http.ResponseWriter, r *http.Request) { _ = exec(r).Discard(); refuse(w) }, ""},
		"Keep":    {func(w http.ResponseWriter, r *http.Request) { exec(r).Keep(); refuse(w) }, middleware.Executed},
		"Unknown": {func(w http.ResponseWriter, r *http.Request) { exec(r).Unknown(); refuse(w) }, middleware.Unknown},
		"Flush": {func(w http.ResponseWriter, _ *http.Request) {
			refuse(w)
			_ = http.NewResponseController(w).Flush()
		}, middleware.Executed},
		"too long": {func(w http.ResponseWriter, _ *http.Request) {
			refuse(w)
			_, _ = io.WriteString(w, strings.Repeat("x", 101))
		}, middleware.NotStored},
		"broken": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			refuse(w)
		}, middleware.Unknown},
	} {
		for mode, opts := range modes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				s := serve(t, redistest.Mini(t), c.handle, append(opts(), middleware.WithNothingHappened(isRefusal), middleware.WithMaxResponse(100))...)
				want, again := c.first, middleware.Outcome("")
				if want == "" {
					want, again = middleware.Freed, middleware.Freed
				}
				for range 2 {
					resp, err := s.client.Do(s.request()) // a broken response cannot be read
					if err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				}
				if e := s.event(); e.Outcome != want {
					t.Errorf("outcome %s (%v), want %s", e.Outcome, e.Err, want)
				}
				if e := s.event(); (e.Outcome == middleware.Freed) != (again == middleware.Freed) {
					t.Errorf("then %s (%v)", e.Outcome, e.Err)
				}
			})
		}
	}
}

// fault: the run's time is over before the handler answers. Expected: it may have done something, so its refusal is stored.
func TestNothingHappenedTooLate(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]middleware.Option{"acting": nil, "shadow": {middleware.WithShadow()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const limit = time.Millisecond
			s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, r *http.Request) {
				select {
				case <-r.Context().Done():
				case <-time.After(100 * limit): // in shadow, where the context does not end: the time itself is the fault
				}
				refuse(w)
			}, append(opts, middleware.WithAtMostOnce(), middleware.WithMaxDuration(limit), middleware.WithNothingHappened(isRefusal))...)
			s.want(s.send(), http.StatusServiceUnavailable, middleware.Executed)
			s.want(s.send(), http.StatusServiceUnavailable, middleware.Replayed)
		})
	}
}

// A middleware inside refuses for now, with what isRefusal is true for: the handler may have had an effect before.
func TestNothingHappenedAndARefusalInside(t *testing.T) {
	t.Parallel()
	closed := newLocker(t, redistest.Mini(t).Client(t))
	if err := closed.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	inside := middleware.Idempotency(closed, keyfunc.Anonymous())(http.NotFoundHandler())
	s := serve(t, redistest.Mini(t), inside.ServeHTTP, middleware.WithAtMostOnce(), middleware.WithNothingHappened(isRefusal))
	s.send()
	if e := s.event(); e.Outcome != middleware.Unknown {
		t.Errorf("%s, want %s", e.Outcome, middleware.Unknown)
	}
}

// In a transaction such a response rolls back, unless the handler has called Keep or Unknown: what the handler then answers
// counts.
func TestNothingHappenedInTx(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, j *memJournal) {
		var say func(*middleware.Execution)
		s, _ := journaled(t, redistest.Mini(t), j, func(w http.ResponseWriter, r *http.Request) {
			if say != nil {
				say(middleware.FromContext(r.Context()))
			}
			err := j.inTx(r.Context(), func() error { refuse(w); return nil })
			if (say != nil) != (err == nil) || err != nil && !strings.Contains(err.Error(), "WithNothingHappened") {
				t.Errorf("InTx returned %v", err)
			}
			if err != nil {
				refuse(w)
			}
		}, middleware.WithNothingHappened(isRefusal))
		s.want(s.send(), http.StatusServiceUnavailable, middleware.Freed)
		j.want(t, 0, 0)
		for i, of := range []func(*middleware.Execution){(*middleware.Execution).Keep, (*middleware.Execution).Unknown} {
			say = of
			k := key(fmt.Sprint("said-", i))
			s.want(s.send(k), http.StatusServiceUnavailable, middleware.Executed)
			s.want(s.send(k), http.StatusServiceUnavailable, middleware.Replayed)
			j.want(t, i+1, i+1)
		}
	})
}
