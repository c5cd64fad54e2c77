package capture_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware/internal/capture"
	"github.com/onceguard/onceguard/middleware/internal/response"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sendings counts the calls of Sending.
type sendings int

func (s *sendings) Sending() { *s++ }

// limit is how many bytes of a body the Writers in these tests buffer.
const limit = 10

// begin returns a Writer over an httptest.ResponseRecorder whose header an outer middleware has begun.
func begin(method string) (w *capture.Writer, under *httptest.ResponseRecorder, observer *sendings) {
	w, under, observer = new(capture.Writer), httptest.NewRecorder(), new(sendings)
	under.Header().Set("X-Outer", "1")
	w.Begin(under, httptest.NewRequest(method, "/", nil), observer, limit)
	return w, under, observer
}

func write(t *testing.T, w io.Writer, s string) {
	t.Helper()
	if n, err := io.WriteString(w, s); n != len(s) || err != nil {
		t.Fatalf("Write(%q) = %d, %v", s, n, err)
	}
}

// wantClosed checks that a goroutine left behind can do nothing with w.
func wantClosed(t *testing.T, w *capture.Writer, under *httptest.ResponseRecorder) {
	t.Helper()
	before := under.Body.String()
	w.WriteHeader(http.StatusTeapot)
	_, errWrite := w.Write([]byte("late"))
	_, _, errHijack := w.Hijack()
	for name, err := range map[string]error{
		"Write": errWrite, "FlushError": w.FlushError(), "Hijack": errHijack, "Push": w.Push("/", nil),
		"SetReadDeadline": w.SetReadDeadline(time.Now()), "SetWriteDeadline": w.SetWriteDeadline(time.Now()),
		"EnableFullDuplex": w.EnableFullDuplex(),
	} {
		if !errors.Is(err, capture.ErrReturned) {
			t.Errorf("%s returned %v, want ErrReturned", name, err)
		}
	}
	if w.Status() == http.StatusTeapot || under.Body.String() != before {
		t.Error("a late call changed the response")
	}
}

// Until Deliver the client has nothing.
func TestBufferedUntilDeliver(t *testing.T) {
	w, under, observer := begin(http.MethodPost)
	w.Header().Set("Location", "/1")
	w.WriteHeader(http.StatusCreated)
	write(t, w, "created")
	if v := w.Finish(false); v != capture.Whole {
		t.Fatalf("verdict %v, want Whole", v)
	}
	wantClosed(t, w, under)
	stored, cookiesDropped := w.Response(false)
	if stored.Status != http.StatusCreated || string(stored.Body) != "created" || cookiesDropped || len(stored.Header) != 1 {
		t.Errorf("stored %+v, want a 201 with Location and its body, whose type net/http detects", stored)
	}
	if under.Body.Len() > 0 || w.Started() || w.SentStatus() != 0 || *observer != 0 {
		t.Fatal("a part of the response was sent before Deliver")
	}
	w.Deliver(t.Context())
	if under.Code != http.StatusCreated || under.Body.String() != "created" || under.Header().Get("Location") != "/1" {
		t.Errorf("the client got %d, %q, %v", under.Code, under.Body, under.Header())
	}
	wantClosed(t, w, under)
}

// From the first flush on, what is written is sent at once, and buffered while it fits.
func TestStarted(t *testing.T) {
	for name, c := range map[string]struct {
		handler func(*testing.T, *capture.Writer)
		body    string // when the handler returns
		want    capture.Verdict
	}{
		"flush": {func(t *testing.T, w *capture.Writer) {
			write(t, w, "a")
			w.Flush()
			write(t, w, "b")
		}, "ab", capture.Whole},
		"overflow": {func(t *testing.T, w *capture.Writer) {
			write(t, w, strings.Repeat("x", limit))
			write(t, w, "y")
		}, strings.Repeat("x", limit) + "y", capture.Partial},
		"flush, then overflow": {func(t *testing.T, w *capture.Writer) {
			w.Flush()
			write(t, w, strings.Repeat("x", limit+1))
		}, strings.Repeat("x", limit+1), capture.Partial},
	} {
		t.Run(name, func(t *testing.T) {
			w, under, observer := begin(http.MethodPost)
			c.handler(t, w)
			if under.Body.String() != c.body || !w.Started() || w.SentStatus() != http.StatusOK || *observer != 1 {
				t.Errorf("sent %q, status %d, %d calls of Sending; want %q, 200, 1", under.Body, w.SentStatus(), *observer, c.body)
			}
			if v := w.Finish(false); v != c.want {
				t.Errorf("verdict %v, want %v", v, c.want)
			}
			w.Deliver(t.Context())
			if under.Body.String() != c.body {
				t.Errorf("after Deliver the client has %q, want %q", under.Body, c.body)
			}
		})
	}
}

func TestVerdict(t *testing.T) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		method  string
		ctx     context.Context
		handler func(http.ResponseWriter)
		want    capture.Verdict
		status  int
	}{
		"nothing written":             {"POST", t.Context(), func(http.ResponseWriter) {}, capture.Whole, 200},
		"nothing, and ctx is done":    {"POST", done, func(http.ResponseWriter) {}, capture.TimedOut, 504},
		"a status, and ctx is done":   {"POST", done, func(w http.ResponseWriter) { w.WriteHeader(201) }, capture.Whole, 201},
		"shorter than Content-Length": {"POST", t.Context(), withLength("3", "ab"), capture.Broken, 200},
		"as long as Content-Length":   {"POST", t.Context(), withLength("2", "ab"), capture.Whole, 200},
		"longer than Content-Length":  {"POST", t.Context(), withLength("1", "ab"), capture.Broken, 200},
		"HEAD":                        {"HEAD", t.Context(), withLength("3", ""), capture.Whole, 200},
		"a malformed Content-Length":  {"POST", t.Context(), withLength("x", "ab"), capture.Whole, 200},
		"101":                         {"POST", t.Context(), func(w http.ResponseWriter) { w.WriteHeader(101) }, capture.Partial, 101},
		"204":                         {"POST", t.Context(), func(w http.ResponseWriter) { w.WriteHeader(204) }, capture.Whole, 204},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, _ := begin(c.method)
			c.handler(w)
			if v := w.Finish(c.ctx.Err() != nil); v != c.want || w.Status() != c.status {
				t.Errorf("verdict %v, status %d; want %v, %d", v, w.Status(), c.want, c.status)
			}
			w.Deliver(t.Context())
		})
	}
}

func withLength(length, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", length)
		_, _ = io.WriteString(w, body)
	}
}

// endless is a context whose deadline has passed and that is never done.
type endless struct{ context.Context }

func (endless) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }
func (endless) Done() <-chan struct{}       { return nil }

// A TimedOut response goes out without what the handler has prepared for one, and after an outer deadline when the middleware
// that has set it has been told.
func TestTimedOutResponseIsBare(t *testing.T) {
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, outer := range []context.Context{t.Context(), over, endless{t.Context()}} {
		w, under, _ := begin(http.MethodPost)
		w.Header().Set("Location", "/1")
		w.Finish(true)
		w.Deliver(outer)
		if under.Code != http.StatusGatewayTimeout || under.Header().Get("Location") != "" || under.Header().Get("X-Outer") != "1" {
			t.Errorf("the client got %d, %v; want a 504 with the outer header alone", under.Code, under.Header())
		}
	}
}

// After Withdraw and Abort another answer starts from the header that the outer middlewares left.
func TestGivenUp(t *testing.T) {
	for name, giveUp := range map[string]func(*capture.Writer){
		"Withdraw":                func(w *capture.Writer) { w.Finish(false); w.Withdraw() },
		"Abort":                   (*capture.Writer).Abort,
		"Abort that has finished": func(w *capture.Writer) { w.Finish(false); w.Abort() },
	} {
		t.Run(name, func(t *testing.T) {
			w, under, observer := begin(http.MethodPost)
			w.Header().Set("Location", "/1")
			w.Header().Del("X-Outer")
			write(t, w, "created")
			giveUp(w)
			wantClosed(t, w, under)
			if h := under.Header(); h.Get("Location") != "" || h.Get("X-Outer") != "1" || under.Body.Len() > 0 || *observer != 0 {
				t.Errorf("what is left: %v, %q, %d calls of Sending", h, under.Body, *observer)
			}
			if w.SentStatus() != 0 || w.Status() != http.StatusOK {
				t.Errorf("status %d, sent %d; want 200, 0", w.Status(), w.SentStatus())
			}
		})
	}
}

// What has been sent stays as it is when the handler panics.
func TestAbortAfterFlush(t *testing.T) {
	w, under, _ := begin(http.MethodPost)
	w.Header().Set("Location", "/1")
	w.WriteHeader(http.StatusCreated)
	w.Flush()
	w.Abort()
	if w.SentStatus() != http.StatusCreated || under.Header().Get("Location") != "/1" {
		t.Errorf("sent %d, %v", w.SentStatus(), under.Header())
	}
}

// hints is a writer that counts the 1xx statuses it gets.
type hints struct {
	http.ResponseWriter
	n int
}

func (h *hints) WriteHeader(status int) {
	if status < 200 {
		h.n++
		return
	}
	h.ResponseWriter.WriteHeader(status)
}

// A hint would tell the client of a transaction that may be rolled back.
func TestNoHintBetweenMarkAndSetAside(t *testing.T) {
	w, under, observer := new(capture.Writer), &hints{ResponseWriter: httptest.NewRecorder()}, new(sendings)
	w.Begin(under, httptest.NewRequest(http.MethodPost, "/", nil), observer, limit)
	if err := w.BeginPart(); err != nil {
		t.Fatal(err)
	}
	w.Header().Set("Link", "</orders/1>; rel=preload")
	w.WriteHeader(http.StatusEarlyHints)
	if w.Rewind(); under.n != 0 {
		t.Error("a 103 was sent in the transaction")
	}
	if w.WriteHeader(http.StatusEarlyHints); under.n != 1 {
		t.Error("no 103 was sent after it")
	}
	w.Finish(false)
	w.Deliver(t.Context())
}

// A goroutine that the transaction has left behind may still try to fix a response that was rewound.
func TestFixAfterRewind(t *testing.T) {
	w, _, _ := begin(http.MethodPost)
	if err := w.BeginPart(); err != nil {
		t.Fatal(err)
	}
	write(t, w, "paid")
	w.Rewind()
	if err := w.SetAside(noError); !errors.Is(err, journal.ErrNoResponse) {
		t.Errorf("SetAside returned %v, want ErrNoResponse", err)
	}
	write(t, w, "failed")
}

// compressor takes the first status for the final one, even a 1xx, and sets its Content-Encoding then.
type compressor struct {
	*httptest.ResponseRecorder
	hinted  bool
	entered chan struct{} // if not nil: closed in a 1xx
	leave   chan struct{} // ends that call
}

func (c *compressor) WriteHeader(status int) {
	if !c.hinted {
		c.hinted = true
		c.Header().Set("Content-Encoding", "gzip")
		c.Header().Add("Vary", "Accept-Encoding")
	}
	if status != http.StatusEarlyHints {
		c.ResponseRecorder.WriteHeader(status)
		return
	}
	if c.entered != nil {
		close(c.entered)
		<-c.leave
	}
}

// What an outer writer does to the header in a 1xx is neither the handler's nor stored, and goes with whatever is answered
// in the end, because the outer writer compresses that.
//
// fault: the handler sends a 1xx below a compressor, and ends in any way -> the response has the compressor's header
func TestHeaderAfterA1xx(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(*testing.T, *capture.Writer)
		vary  string
		extra bool // the handler's header is on the response
	}{
		"delivered": {func(t *testing.T, w *capture.Writer) {
			w.Finish(false)
			if r, _ := w.Response(false); len(r.Header) != 2 || slices.ContainsFunc(r.Header, isEncoding) {
				t.Errorf("stored %+v, want the handler's header alone", r.Header)
			}
			w.Deliver(t.Context())
		}, "[Origin Accept-Encoding]", true},
		"sent at once": {func(t *testing.T, w *capture.Writer) {
			write(t, w, strings.Repeat("x", limit+1))
			w.Finish(false)
			w.Deliver(t.Context())
		}, "[Origin Accept-Encoding]", true},
		"timed out":     {func(t *testing.T, w *capture.Writer) { w.Finish(true); w.Deliver(t.Context()) }, "[Accept-Encoding]", false},
		"withdrawn":     {func(_ *testing.T, w *capture.Writer) { w.Finish(false); w.Withdraw() }, "[Accept-Encoding]", false},
		"aborted early": {func(_ *testing.T, w *capture.Writer) { w.Abort() }, "[Origin Accept-Encoding]", true},
		"aborted":       {func(_ *testing.T, w *capture.Writer) { w.WriteHeader(201); w.Abort() }, "[Accept-Encoding]", false},
	} {
		t.Run(name, func(t *testing.T) {
			w, under := new(capture.Writer), &compressor{ResponseRecorder: httptest.NewRecorder()}
			w.Begin(under, httptest.NewRequest(http.MethodPost, "/", nil), new(sendings), limit)
			w.Header().Set("Vary", "Origin")
			w.Header().Set("X-Mine", "1")
			w.WriteHeader(http.StatusEarlyHints)
			if got := fmt.Sprint(w.Header()); got != "map[Vary:[Origin] X-Mine:[1]]" {
				t.Errorf("the handler sees %s", got)
			}
			c.end(t, w)
			h := under.Result().Header
			if h.Get("Content-Encoding") != "gzip" || fmt.Sprint(h["Vary"]) != c.vary || (h.Get("X-Mine") != "") != c.extra {
				t.Errorf("the answer has %v, want the compressor's header, Vary %s, X-Mine: %t", h, c.vary, c.extra)
			}
		})
	}
}

func isEncoding(c response.Change) bool { return c.Name == "Content-Encoding" }

// fault: a goroutine is left behind in a 1xx below a compressor -> what the compressor adds is not stored, and is sent
func TestHeaderAfterA1xxLeftBehind(t *testing.T) {
	w := new(capture.Writer)
	under := &compressor{ResponseRecorder: httptest.NewRecorder(), entered: make(chan struct{}), leave: make(chan struct{})}
	w.Begin(under, httptest.NewRequest(http.MethodPost, "/", nil), new(sendings), limit)
	w.Header().Set("X-Mine", "1")
	go w.WriteHeader(http.StatusEarlyHints)
	<-under.entered
	if v := w.Finish(false); v != capture.Whole {
		t.Fatalf("verdict %v, want Whole", v)
	}
	if r, _ := w.Response(false); len(r.Header) != 1 || r.Header[0].Name != "X-Mine" {
		t.Errorf("stored %+v, want X-Mine alone", r.Header)
	}
	close(under.leave)
	w.Deliver(t.Context())
	if got := fmt.Sprint(under.Result().Header); got != "map[Content-Encoding:[gzip] Vary:[Accept-Encoding] X-Mine:[1]]" {
		t.Errorf("sent with %s", got)
	}
}
