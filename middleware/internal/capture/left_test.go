package capture_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/middleware/internal/capture"
)

// A handler may leave a goroutine behind that is in a call to the underlying writer for as long as the client reads
// nothing. In the tests in this file it is.

// stuck is a writer one of whose methods takes until the client reads.
type stuck struct {
	header         http.Header
	at             string // the call that does, as it stands in calls
	entered, reads chan struct{}
	within         func() // called there; nil for nothing

	mu    sync.Mutex
	calls []string
	sent  http.Header // with the status
	conn  net.Conn    // the client's end, after Hijack
}

func newStuck(at string) *stuck {
	return &stuck{header: http.Header{}, at: at, entered: make(chan struct{}), reads: make(chan struct{})}
}

func (u *stuck) call(format string, args ...any) {
	call := fmt.Sprintf(format, args...)
	u.mu.Lock()
	u.calls = append(u.calls, call)
	u.mu.Unlock()
	if call != u.at {
		return
	}
	close(u.entered)
	if u.within != nil {
		u.within()
	}
	<-u.reads
}

func (u *stuck) Header() http.Header { return u.header }
func (u *stuck) Flush()              { u.call("Flush") }

func (u *stuck) WriteHeader(status int) {
	if status >= 200 {
		u.sent = u.header.Clone()
	}
	u.call("%d", status)
}

func (u *stuck) Write(p []byte) (int, error) {
	u.call("%s", p)
	return len(p), nil
}

func (u *stuck) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	u.call("Hijack")
	server, client := net.Pipe()
	u.conn = client
	return server, nil, nil
}

func put(text string) func(*capture.Writer) error {
	return func(w *capture.Writer) error { _, err := w.WriteString(text); return err }
}

func hijack(w *capture.Writer) error { _, _, err := w.Hijack(); return err }

func hint(w *capture.Writer) error {
	w.WriteHeader(http.StatusEarlyHints)
	return capture.ErrReturned // there is nothing to tell a handler
}

// While the call hangs, Finish and Abort return, and Deliver and Withdraw do not, because net/http then uses the writer's
// memory and connection for others. After the call, only the rest of the response is written, and nothing by that goroutine.
func TestCallThatHangs(t *testing.T) {
	full := strings.Repeat("a", limit)
	begun := put("begun ")
	for name, test := range map[string]struct {
		at      string
		before  func(*capture.Writer) error // in the handler; nil for nothing
		left    func(*capture.Writer) error // in the goroutine that it leaves behind
		verdict capture.Verdict
		calls   []string
		owed    []string // are called too, after at, by Deliver
	}{
		"hint":   {"103", nil, hint, capture.Whole, []string{"103"}, []string{"200"}},
		"status": {"200", begun, (*capture.Writer).FlushError, capture.Whole, []string{"200"}, []string{"begun "}},
		"body":   {"begun ", begun, (*capture.Writer).FlushError, capture.Whole, []string{"200", "begun "}, nil},
		"flush":  {"Flush", begun, (*capture.Writer).FlushError, capture.Whole, []string{"200", "begun ", "Flush"}, nil},
		"write": {"more", func(w *capture.Writer) error { return errors.Join(begun(w), w.FlushError()) }, put("more"), capture.Whole,
			[]string{"200", "begun ", "Flush", "more"}, nil},
		"overflow":                {"begun ", begun, put(full), capture.Partial, []string{"200", "begun "}, nil},
		"write after an overflow": {"more", put(full + "a"), put("more"), capture.Partial, []string{"200", full + "a", "more"}, nil},
		"status before a hijack":  {"200", begun, hijack, capture.Whole, []string{"200"}, []string{"begun "}},
		"hijack":                  {"Hijack", begun, hijack, capture.Whole, []string{"200", "begun ", "Hijack"}, nil},
	} {
		for _, end := range []string{"Deliver", "Abort", "Finish, Abort"} {
			t.Run(name+"/"+end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					u, w := newStuck(test.at), new(capture.Writer)
					w.Begin(u, httptest.NewRequest(http.MethodPost, "/", nil), new(sendings), limit)
					if test.before != nil {
						if err := test.before(w); err != nil {
							t.Fatal(err)
						}
					}
					errs := make(chan error, 3)
					go func() {
						errs <- test.left(w)
						errs <- put("late")(w)
						w.WriteHeader(http.StatusTeapot)
						errs <- w.FlushError()
					}()
					<-u.entered
					done, want := false, test.calls
					go func() {
						if end != "Abort" {
							if v := w.Finish(false); v != test.verdict {
								t.Errorf("verdict %d, want %d", v, test.verdict)
							}
						}
						if end == "Deliver" {
							w.Deliver(t.Context())
						} else {
							w.Abort()
						}
						done = true
					}()
					if synctest.Wait(); done != (end != "Deliver") {
						t.Errorf("has returned: %t", done)
					}
					if end == "Deliver" {
						want = append(slices.Clip(want), test.owed...)
					}
					close(u.reads)
					if synctest.Wait(); !done || !slices.Equal(u.calls, want) {
						t.Errorf("has returned: %t; calls %q, want %q", done, u.calls, want)
					}
					for range 3 {
						if err := <-errs; !errors.Is(err, capture.ErrReturned) {
							t.Errorf("the goroutine got %v, want ErrReturned", err)
						}
					}
					if u.conn != nil {
						_ = u.conn.SetReadDeadline(time.Now().Add(time.Second))
						if _, err := u.conn.Read(make([]byte, 1)); err != io.EOF {
							t.Errorf("a connection that nobody was given: %v, want it closed", err)
						}
					}
				})
			})
		}
	}
}

// As long as the handler runs, a call waits for one that hangs.
func TestCallsBehindOneThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, w := newStuck("200"), new(capture.Writer)
		w.Begin(u, httptest.NewRequest(http.MethodPost, "/", nil), new(sendings), limit)
		write(t, w, "begun")
		go w.Flush()
		<-u.entered
		go put("more")(w)
		if synctest.Wait(); !slices.Equal(u.calls, []string{"200"}) {
			t.Errorf("calls %q while one hangs", u.calls)
		}
		close(u.reads)
		if synctest.Wait(); !slices.Equal(u.calls, []string{"200", "begun", "Flush", "more"}) {
			t.Errorf("calls %q", u.calls)
		}
		w.Finish(false)
		w.Deliver(t.Context())
	})
}

// What another request's answer replaces is withdrawn after the call, and leaves nothing in the header.
func TestWithdrawWhileACallHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, w := newStuck("103"), new(capture.Writer)
		u.header.Set("X-Request-Id", "today")
		w.Begin(u, httptest.NewRequest(http.MethodPost, "/", nil), new(sendings), limit)
		go w.WriteHeader(http.StatusEarlyHints)
		<-u.entered
		u.header.Set("X-Request-Id", "own")
		w.Finish(false)
		done := false
		go func() { w.Withdraw(); done = true }()
		if synctest.Wait(); done {
			t.Error("Withdraw has not waited")
		}
		close(u.reads)
		if synctest.Wait(); !done || u.header.Get("X-Request-Id") != "today" {
			t.Errorf("withdrawn: %t, header %v", done, u.header)
		}
	})
}

// What is stored is what is sent, whichever goroutine began to send it: the header as it was with the status, the trailers
// as they were at the end. An outer writer may change the header when it gets the status, as one that compresses does.
func TestStoredWhileItIsSent(t *testing.T) {
	for name, change := range map[string]func(http.Header){
		"header as it was": func(http.Header) {},
		"header changed":   func(h http.Header) { h.Set("X-Mine", "too late") },
		"trailers": func(h http.Header) {
			h.Set("X-Sum", "abc")
			h.Set(http.TrailerPrefix+"X-Late", "b")
			h.Set("X-Mine", "too late")
		},
	} {
		for _, at := range []string{"201", "begun", "Flush"} {
			t.Run(name+"/"+at, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					u, w := newStuck(at), new(capture.Writer)
					if at == "201" {
						u.within = func() { u.header.Set("Content-Encoding", "gzip") }
					}
					w.Begin(u, httptest.NewRequest(http.MethodPost, "/", nil), new(sendings), limit)
					w.Header().Set("Trailer", "X-Sum")
					w.Header().Set("X-Sum", "not yet")
					w.Header().Set("X-Mine", "a")
					w.WriteHeader(http.StatusCreated)
					write(t, w, "begun")
					change(w.Header())
					end := w.Header().Clone()
					go w.Flush()
					<-u.entered
					w.Finish(false)
					stored, _ := w.Response(false)
					close(u.reads)
					w.Deliver(t.Context())
					again := httptest.NewRecorder()
					stored.WriteTo(again, httptest.NewRequest(http.MethodPost, "/", nil), "Mark")
					for _, name := range []string{"X-Mine", "X-Sum"} {
						if a, b := u.sent[name], again.Result().Header[name]; !slices.Equal(a, b) || len(a) != 1 {
							t.Errorf("%s: %q, replayed %q", name, a, b)
						}
					}
					for _, name := range []string{"X-Sum", http.TrailerPrefix + "X-Late"} {
						a, b := u.header[name], again.Header()[name]
						if !slices.Equal(a, b) || !slices.Equal(a, end[name]) {
							t.Errorf("trailer %s: %q, replayed %q, want %q", name, a, b, end[name])
						}
					}
					if string(stored.Body) != "begun" || again.Header().Get("Content-Encoding") != "" {
						t.Errorf("stored %q, replayed %v", stored.Body, again.Header())
					}
				})
			})
		}
	}
}
