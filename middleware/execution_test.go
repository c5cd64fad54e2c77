package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

func TestNilExecution(t *testing.T) {
	t.Parallel()
	e := middleware.FromContext(t.Context())
	if e != nil {
		t.Fatal("an execution out of nowhere")
	}
	e.Keep()
	e.Unknown()
	e.Retain(time.Hour)
	if err := e.Discard(); err != nil || e.Key() != "" || e.Fence() != 0 {
		t.Errorf("Discard: %v, Key: %q", err, e.Key())
	}
}

func TestExecution(t *testing.T) {
	t.Parallel()
	type run struct {
		w http.ResponseWriter
		e *middleware.Execution
		t *testing.T
	}
	fails := func(r run) { r.w.WriteHeader(http.StatusBadGateway) }
	flush := func(r run) {
		if err := http.NewResponseController(r.w).Flush(); err != nil {
			r.t.Error(err)
		}
	}
	discard := func(want error) func(run) {
		return func(r run) {
			if err := r.e.Discard(); !errors.Is(err, want) {
				r.t.Errorf("Discard: %v, want %v", err, want)
			}
		}
	}
	keep := func(r run) { r.e.Keep() }
	unknown := func(r run) { r.e.Unknown() }
	long := func(length string, writes ...string) func(run) {
		return func(r run) {
			r.w.Header().Set("Content-Length", length)
			for _, text := range writes {
				_, _ = io.WriteString(r.w, text)
			}
		}
	}

	for name, test := range map[string]struct {
		do      []func(run)
		first   middleware.Outcome
		retried middleware.Outcome
		status  int // of the retry
	}{
		"a failure":             {[]func(run){fails}, middleware.Freed, middleware.Freed, 502},
		"a kept failure":        {[]func(run){keep, fails}, middleware.Executed, middleware.Replayed, 502},
		"a discarded success":   {[]func(run){discard(nil)}, middleware.Freed, middleware.Freed, 200},
		"kept after all":        {[]func(run){discard(nil), keep, fails}, middleware.Executed, middleware.Replayed, 502},
		"kept, not discardable": {[]func(run){keep, discard(middleware.ErrCommitted)}, middleware.Executed, middleware.Replayed, 200},
		"flushed failure":       {[]func(run){fails, flush}, middleware.Executed, middleware.Replayed, 502},
		"flushed, not discardable": {
			[]func(run){flush, discard(middleware.ErrCommitted)}, middleware.Executed, middleware.Replayed, 200,
		},
		"discarded, then flushed": {
			[]func(run){discard(nil), fails, flush}, middleware.Executed, middleware.Replayed, 502,
		},
		"panic":            {[]func(run){func(run) { panic(http.ErrAbortHandler) }}, middleware.Panicked, middleware.InFlight, 409},
		"panic when kept":  {[]func(run){keep, func(run) { panic(http.ErrAbortHandler) }}, middleware.Panicked, middleware.NotReplayable, 409},
		"panic when begun": {[]func(run){flush, func(run) { panic(http.ErrAbortHandler) }}, middleware.Panicked, middleware.OutcomeUnknown, 409},
		"unknown":          {[]func(run){unknown, fails}, middleware.Unknown, middleware.InFlight, 409},
		"unknown success":  {[]func(run){unknown}, middleware.Unknown, middleware.InFlight, 409},
		"unknown beats an earlier discard": {
			[]func(run){discard(nil), unknown, fails}, middleware.Unknown, middleware.InFlight, 409,
		},
		"unknown beats a later discard": {
			[]func(run){unknown, discard(middleware.ErrCommitted), fails}, middleware.Unknown, middleware.InFlight, 409,
		},
		"unknown beats an earlier keep": {[]func(run){keep, unknown, fails}, middleware.Unknown, middleware.InFlight, 409},
		"a later keep beats unknown":    {[]func(run){unknown, keep, fails}, middleware.Executed, middleware.Replayed, 502},
		"unknown, then flushed":         {[]func(run){unknown, fails, flush}, middleware.Unknown, middleware.OutcomeUnknown, 409},
		"flushed, then unknown":         {[]func(run){fails, flush, unknown}, middleware.Unknown, middleware.OutcomeUnknown, 409},
		"too short":                     {[]func(run){long("3", "ab")}, middleware.Unknown, middleware.InFlight, 409},
		"too long":                      {[]func(run){long("3", "ab", "cd", "e")}, middleware.Unknown, middleware.InFlight, 409},
		"too short, begun":              {[]func(run){long("3", "ab"), flush}, middleware.Unknown, middleware.OutcomeUnknown, 409},
		"as long as it says":            {[]func(run){long("3", "ab", "c")}, middleware.Executed, middleware.Replayed, 200},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
					for _, do := range test.do {
						do(run{w, middleware.FromContext(r.Context()), t})
					}
				})
				_, _ = s.try(s.request(noRetry)) // its connection may break
				if e := s.event(); e.Outcome != test.first || (e.Outcome == middleware.Unknown || e.Outcome == middleware.Panicked) != (e.Err != nil) {
					t.Errorf("first: %+v, want %s, with an error if it is unknown", e, test.first)
				}
				again, _ := s.try(s.request(noRetry))
				if e := s.event(); e.Outcome != test.retried || e.Status != test.status {
					t.Errorf("retry: %+v, want %s, %d", e, test.retried, test.status)
				}
				switch test.retried {
				case middleware.Unknown:
					wantUnknownNotStored(t, again)
				case middleware.NotStored:
					wantProcessed(t, again)
				}
			})
		})
	}
}

// wantUnknownNotStored checks the answer to the retry of a run that left a tombstone, and may have had no effect.
func wantUnknownNotStored(t *testing.T, a answer) {
	t.Helper()
	if got := a.detail(t); a.problem() != "response-not-stored" || !strings.Contains(got, "not known whether it took effect") ||
		strings.Contains(got, "was processed") || strings.Contains(a.body, "original_status") {
		t.Errorf("%s, want that it is not known whether the request took effect", a.body)
	}
}

// wantProcessed checks the answer to the retry of a run that has called Keep, and left no response.
func wantProcessed(t *testing.T, a answer) {
	t.Helper()
	if a.problem() != "response-not-stored" || !strings.Contains(a.detail(t), "was processed") ||
		strings.Contains(a.body, "original_status") {
		t.Errorf("%s, want that the request was processed", a.body)
	}
}

// The response of an unknown outcome is sent as the handler wrote it.
func TestUnknownResponseIsSent(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
			middleware.FromContext(r.Context()).Unknown()
			w.Header().Set("X-Attempt", "1")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "no answer to COMMIT")
		})
		a := s.send()
		s.want(a, http.StatusBadGateway, middleware.Unknown)
		if a.body != "no answer to COMMIT" || a.header.Get("X-Attempt") != "1" || a.replayed() {
			t.Errorf("%+v, want what the handler wrote", a)
		}
		if value, _ := b.Raw(t, b.Keys(t)[0]); strings.Contains(value, "COMMIT") {
			t.Errorf("stored: %q", value)
		}
		s.want(s.send(), http.StatusConflict, middleware.InFlight)
		b.Elapse(t, leaseTTL)
		s.want(s.send(), http.StatusBadGateway, middleware.Unknown) // it runs again
		s.wantRuns(2)
	})
}

// The Event of every unknown outcome has the reason, and not the value of a panic.
func TestUnknownEventHasTheReason(t *testing.T) {
	t.Parallel()
	const secret = "card number"
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		why     string
		want    middleware.Outcome
	}{
		"panic":                         {func(http.ResponseWriter, *http.Request) { panic(secret) }, "panicked", middleware.Panicked},
		"goexit":                        {func(http.ResponseWriter, *http.Request) { runtime.Goexit() }, "runtime.Goexit", middleware.Panicked},
		"silent":                        {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline exceeded", middleware.Unknown},
		"broken":                        {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "3") }, "Content-Length", middleware.Unknown},
		"said":                          {func(_ http.ResponseWriter, r *http.Request) { middleware.FromContext(r.Context()).Unknown() }, "Execution.Unknown", middleware.Unknown},
		"in the function of WithStored": {func(http.ResponseWriter, *http.Request) {}, "WithStored", middleware.Panicked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := redistest.Mini(t)
			protected := func(s *site, r *http.Request) {
				done := make(chan struct{})
				go func() { // that a panic or a Goexit ends
					defer close(done)
					defer func() { _ = recover() }()
					s.handler.ServeHTTP(httptest.NewRecorder(), r)
				}()
				<-done
			}
			s := serve(t, b, test.handler, middleware.WithAtMostOnce(), middleware.WithMaxDuration(20*time.Millisecond),
				middleware.WithStored(func(int) bool { panic(secret) }))
			protected(s, s.request())
			e := s.event()
			if e.Outcome != test.want || e.Err == nil || !strings.Contains(e.Err.Error(), test.why) || e.Pending {
				t.Errorf("%+v, want %s, and an error with %q", e, test.want, test.why)
			}
			if e.Err != nil && strings.Contains(e.Err.Error(), secret) {
				t.Errorf("the error shows what the handler panicked with: %v", e.Err)
			}
			b.Elapse(t, leaseTTL)
			if e := s.want(s.send(), http.StatusConflict, middleware.OutcomeUnknown); e.Err == nil {
				t.Error("a duplicate: the event has no error")
			}
			s.noEvent()
		})
	}
}

func TestRetain(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, func(_ http.ResponseWriter, r *http.Request) {
			middleware.FromContext(r.Context()).Retain(time.Hour)
			middleware.FromContext(r.Context()).Retain(0) // ignored
		})
		s.want(s.send(), http.StatusOK, middleware.Executed)
		b.Elapse(t, 30*time.Minute)
		s.want(s.send(), http.StatusOK, middleware.Replayed)
		b.Elapse(t, 30*time.Minute)
		s.want(s.send(), http.StatusOK, middleware.Executed)
	})
}

// conformance: 47
func TestTooLongToKeep(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		delivered := make(chan struct{})
		s := serve(t, b, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, strings.Repeat("x", 10))
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			<-delivered
			_, _ = io.WriteString(w, strings.Repeat("y", 10))
		}, middleware.WithMaxResponse(19))
		resp, err := s.client.Do(s.request())
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		start := make([]byte, 10)
		if _, err := io.ReadFull(resp.Body, start); err != nil {
			t.Fatal(err)
		}
		close(delivered) // it had left before the handler was done
		rest, err := io.ReadAll(resp.Body)
		if got := string(start) + string(rest); err != nil || got != strings.Repeat("x", 10)+strings.Repeat("y", 10) {
			t.Errorf("the first response is %q, %v", got, err)
		}
		if e := s.event(); e.Outcome != middleware.NotStored || e.Status != http.StatusAccepted || e.Err != nil {
			t.Errorf("%+v, want not-stored without an error", e)
		}
		a := s.send()
		s.want(a, http.StatusConflict, middleware.NotReplayable)
		if a.problem() != "response-not-stored" || !strings.Contains(a.body, `"original_status":202`) ||
			!strings.Contains(a.detail(t), "was processed") {
			t.Errorf("the retry got %s", a.body)
		}
		s.want(s.send(body("text/plain", "other")), http.StatusUnprocessableEntity, middleware.Reused)
		s.wantRuns(1)
	})
}

// conformance: 47
func TestLimitOfResponse(t *testing.T) {
	t.Parallel()
	for length, want := range map[int]middleware.Outcome{0: middleware.Executed, 20: middleware.Executed, 21: middleware.NotStored} {
		text := strings.Repeat("x", length)
		s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, text)
		}, middleware.WithMaxResponse(20))
		a := s.send()
		s.want(a, http.StatusOK, want)
		if a.body != text || a.header.Get("Content-Type") != map[bool]string{true: "text/plain; charset=utf-8"}[length > 0] {
			t.Errorf("%d bytes: %+v", length, a)
		}
	}
}

// conformance: 47
func TestHijacked(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		s := serve(t, b, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrHijacked) {
				t.Errorf("Write: %v, want ErrHijacked", err)
			}
			fmt.Fprint(conn, "HTTP/1.1 418 Teapot\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi")
		})
		a := s.send()
		s.want(a, http.StatusTeapot, middleware.NotStored)
		if a.body != "hi" {
			t.Errorf("body %q", a.body)
		}
		s.want(s.send(), http.StatusConflict, middleware.NotReplayable)
		s.wantRuns(1)
	})
}

func TestMaxDuration(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		first   middleware.Outcome
		retried middleware.Outcome
	}{
		"answers":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusConflict) }, middleware.Executed, middleware.Replayed},
		"fails":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGatewayTimeout) }, middleware.Freed, middleware.Freed},
		"says nothing": {func(http.ResponseWriter, *http.Request) {}, middleware.Unknown, middleware.InFlight},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, limit := range []string{"ours", "outer"} {
				s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					if got := context.Cause(r.Context()); got != context.DeadlineExceeded {
						t.Errorf("%s: cause %v, want DeadlineExceeded", limit, got)
					}
					test.handler(w, r)
				}, middleware.WithMaxDuration(map[string]time.Duration{"ours": 50 * time.Millisecond, "outer": time.Hour}[limit]))
				if limit == "outer" {
					s.outer = chimiddleware.Timeout(time.Second) // from before the claim, which takes a while on a busy machine
				}
				a := s.send()
				if e := s.event(); e.Outcome != test.first {
					t.Errorf("%s: first: %+v, want %s", limit, e, test.first)
				}
				if name == "says nothing" && a.status != http.StatusGatewayTimeout {
					t.Errorf("%s: status %d, want 504", limit, a.status)
				}
				s.send()
				if e := s.event(); e.Outcome != test.retried {
					t.Errorf("%s: retry: %+v, want %s", limit, e, test.retried)
				}
			}
		})
	}
}

// conformance: 49
func TestTemporaryFilesAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var text bytes.Buffer
	fmt.Fprintf(&text, "--b\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\n%s\r\n--b--\r\n", strings.Repeat("x", 100_000))
	mini := miniredis.RunT(t)
	client := redistest.NewClient(t, mini.Addr())
	s := serveOn(t, newLocker(t, client), func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1000); err != nil {
			t.Error(err)
		}
		if files, _ := os.ReadDir(os.TempDir()); len(files) == 0 {
			t.Error("there is no temporary file to be removed")
		}
	}, middleware.WithFailOpen())
	for _, want := range []middleware.Outcome{middleware.Executed, middleware.Unprotected} {
		s.want(s.send(key(string(want)), body("multipart/form-data; boundary=b", text.String())), http.StatusOK, want)
		if files, _ := os.ReadDir(os.TempDir()); len(files) > 0 {
			t.Errorf("%s: left: %v", want, files)
		}
		mini.SetError("ERR away")
	}
	mini.SetError("")
}
