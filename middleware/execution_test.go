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

// What a handler says and does decides what becomes of its key. internal/run has the whole table; these are the ways by which
// a response gets there.
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
	keep, unknown, dies := func(r run) { r.e.Keep() }, func(r run) { r.e.Unknown() }, func(run) { panic(http.ErrAbortHandler) }
	short := func(r run) { r.w.Header().Set("Content-Length", "3") }
	type outcome = middleware.Outcome
	for name, test := range map[string]struct {
		do             []func(run)
		first, retried outcome
		status         int    // of the retry
		detail         string // of its problem
	}{
		"a failure":                {[]func(run){fails}, middleware.Freed, middleware.Freed, 502, ""},
		"a kept failure":           {[]func(run){keep, fails}, middleware.Executed, middleware.Replayed, 502, ""},
		"a discarded success":      {[]func(run){discard(nil)}, middleware.Freed, middleware.Freed, 200, ""},
		"kept, not discardable":    {[]func(run){keep, discard(middleware.ErrCommitted)}, middleware.Executed, middleware.Replayed, 200, ""},
		"flushed, not discardable": {[]func(run){flush, discard(middleware.ErrCommitted)}, middleware.Executed, middleware.Replayed, 200, ""},
		"discarded, then flushed":  {[]func(run){discard(nil), fails, flush}, middleware.Executed, middleware.Replayed, 502, ""},
		"panic":                    {[]func(run){dies}, middleware.Panicked, middleware.InFlight, 409, ""},
		"panic when kept":          {[]func(run){keep, dies}, middleware.Panicked, middleware.NotReplayable, 409, "was processed"},
		"panic when begun":         {[]func(run){flush, dies}, middleware.Panicked, middleware.OutcomeUnknown, 409, "not known whether it took effect"},
		"unknown":                  {[]func(run){unknown, fails}, middleware.Unknown, middleware.InFlight, 409, ""},
		"flushed, then unknown":    {[]func(run){fails, flush, unknown}, middleware.Unknown, middleware.OutcomeUnknown, 409, "not known whether it took effect"},
		"too short":                {[]func(run){short}, middleware.Unknown, middleware.InFlight, 409, ""},
		"too short, begun":         {[]func(run){short, flush}, middleware.Unknown, middleware.OutcomeUnknown, 409, "not known whether it took effect"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, r *http.Request) {
				for _, do := range test.do {
					do(run{w, middleware.FromContext(r.Context()), t})
				}
			})
			_, _ = s.try(s.request(noRetry)) // its connection may break
			if e := s.event(); e.Outcome != test.first || (e.Outcome == middleware.Unknown || e.Outcome == middleware.Panicked) != (e.Err != nil) {
				t.Errorf("first: %+v, want %s, with an error if it is unknown", e, test.first)
			}
			again := s.send()
			if s.want(again, test.status, test.retried); test.detail != "" && !strings.Contains(again.detail(t), test.detail) ||
				strings.Contains(again.body, "original_status") {
				t.Errorf("the retry got %s, want %q", again.body, test.detail)
			}
		})
	}
}

// The Event of every unknown outcome has the reason, and not the value of a panic. The response is sent as it is.
func TestUnknownEventHasTheReason(t *testing.T) {
	t.Parallel()
	const secret = "card number"
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		why     string
		want    middleware.Outcome
	}{
		"panic":  {func(http.ResponseWriter, *http.Request) { panic(secret) }, "panicked", middleware.Panicked},
		"goexit": {func(http.ResponseWriter, *http.Request) { runtime.Goexit() }, "runtime.Goexit", middleware.Panicked},
		"silent": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline exceeded", middleware.Unknown},
		"broken": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "3") }, "Content-Length", middleware.Unknown},
		"said": {func(w http.ResponseWriter, r *http.Request) {
			middleware.FromContext(r.Context()).Unknown()
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, secret)
		}, "Execution.Unknown", middleware.Unknown},
		"in the function of WithStored": {func(http.ResponseWriter, *http.Request) {}, "WithStored", middleware.Panicked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := redistest.Mini(t)
			s := serve(t, b, test.handler, middleware.WithAtMostOnce(), middleware.WithMaxDuration(20*time.Millisecond), // the time is the fault
				middleware.WithStored(func(int) bool { panic(secret) }))
			w, done := httptest.NewRecorder(), make(chan struct{})
			go func() { // that a panic or a Goexit ends
				defer close(done)
				defer func() { _ = recover() }()
				s.handler.ServeHTTP(w, s.request())
			}()
			<-done
			e := s.event()
			if got := fmt.Sprint(e.Err); e.Outcome != test.want || !strings.Contains(got, test.why) || strings.Contains(got, secret) || e.Pending {
				t.Errorf("%+v, want %s, and an error with %q", e, test.want, test.why)
			}
			if want := map[string]int{"said": 502, "silent": 504}[name]; want > 0 && w.Code != want || (name == "said") != (w.Body.String() == secret) {
				t.Errorf("the client got %d %q", w.Code, w.Body)
			}
			if value, _ := b.Raw(t, e.Key); strings.Contains(value, secret) {
				t.Errorf("stored: %q", value)
			}
			b.Elapse(t, leaseTTL)
			if e := s.want(s.send(), http.StatusConflict, middleware.OutcomeUnknown); e.Err == nil {
				t.Error("a duplicate: the event has no error")
			}
			s.noEvent()
		})
	}
}

// A response longer than the limit is delivered as it is written, and not kept.
//
// conformance: 47
func TestLimitOfResponse(t *testing.T) {
	t.Parallel()
	for length, want := range map[int]middleware.Outcome{0: middleware.Executed, 20: middleware.Executed, 21: middleware.NotStored} {
		text := strings.Repeat("x", length)
		s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, text)
		}, middleware.WithMaxResponse(20))
		a := s.send()
		if e := s.want(a, http.StatusAccepted, want); a.body != text || e.Err != nil {
			t.Errorf("%d bytes: %+v, %v", length, a, e.Err)
		}
		if again := s.send(); want == middleware.NotStored && (again.problem() != "response-not-stored" ||
			!strings.Contains(again.body, `"original_status":202`) || !strings.Contains(again.detail(t), "was processed")) {
			t.Errorf("the retry got %s", again.body)
		}
		s.event()
		s.want(s.send(body("text/plain", "other")), http.StatusUnprocessableEntity, middleware.Reused)
		s.wantRuns(1)
	}
}

// conformance: 47
func TestHijacked(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"before the status": 0, "after it": http.StatusAccepted} {
		s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			if status != 0 {
				w.WriteHeader(status)
			}
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if status == 0 {
				fmt.Fprint(conn, "HTTP/1.1 202 Accepted\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			} else {
				fmt.Fprint(conn, "0\r\n\r\n") // the end of a chunked body
			}
		})
		s.want(s.send(), http.StatusAccepted, middleware.NotStored)
		again := s.send()
		s.want(again, http.StatusConflict, middleware.NotReplayable)
		if isKnown := strings.Contains(again.body, `"original_status":202`); isKnown != (status != 0) {
			t.Errorf("%s: the retry got %s", name, again.body)
		}
	}
}

// The context of a run ends at an outer deadline and at WithMaxDuration. An answer that comes after that counts.
func TestMaxDuration(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handler        http.HandlerFunc
		first, retried middleware.Outcome
	}{
		"answers":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusConflict) }, middleware.Executed, middleware.Replayed},
		"fails":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGatewayTimeout) }, middleware.Freed, middleware.Freed},
		"says nothing": {func(http.ResponseWriter, *http.Request) {}, middleware.Unknown, middleware.InFlight},
	} {
		s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			if got := context.Cause(r.Context()); got != context.DeadlineExceeded {
				t.Errorf("cause %v, want DeadlineExceeded", got)
			}
			test.handler(w, r)
		}, middleware.WithMaxDuration(20*time.Millisecond)) // the time is the fault
		a := s.send()
		if e := s.event(); e.Outcome != test.first || name == "says nothing" && a.status != http.StatusGatewayTimeout {
			t.Errorf("%s: first: %d, %+v, want %s", name, a.status, e, test.first)
		}
		s.send()
		if e := s.event(); e.Outcome != test.retried {
			t.Errorf("%s: retry: %+v, want %s", name, e, test.retried)
		}
	}
}

// conformance: 49
func TestTemporaryFilesAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var text bytes.Buffer
	fmt.Fprintf(&text, "--b\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\n%s\r\n--b--\r\n", strings.Repeat("x", 100_000))
	mini := miniredis.RunT(t)
	s := serveOn(t, newLocker(t, redistest.NewClient(t, mini.Addr())), func(_ http.ResponseWriter, r *http.Request) {
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
