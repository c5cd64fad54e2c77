package shadow

import (
	"bufio"
	"crypto/sha256"
	"hash"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/onceguard/onceguard/middleware/internal/capture"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// Tee is a handler's ResponseWriter. It passes the response on at once, unchanged, and observes its status, length and
// digest. It returns what the underlying writer returns.
//
// Like a [capture.Writer] it has no Unwrap, so that nothing is written around it.
type Tee struct {
	under         http.ResponseWriter // the underlying writer
	isHEAD        bool                // the request is a HEAD
	writtenBefore bool                // at NewTee the underlying writer reported that it was written to
	outerHeader   http.Header         // as the outer middlewares left it

	mu          sync.Mutex  // guards the fields below; not locked during a call to the underlying writer
	ended       bool        // End was called: nothing is observed any more
	status      int         // final status, 0 until the handler has set it
	length      int64       // Content-Length, -1 if there is none
	header      http.Header // when the handler set the status
	setsCookies bool        // the handler has changed Set-Cookie, before the status or as a trailer
	written     int64       // bytes of the body that the underlying writer has accepted
	digest      hash.Hash   // of those bytes
	hijacked    bool
	flushed     bool
}

// NewTee returns a Tee for the response to r that is written to under.
func NewTee(under http.ResponseWriter, r *http.Request) *Tee {
	return &Tee{
		under: under, isHEAD: r.Method == http.MethodHead, writtenBefore: capture.IsAnswered(under),
		outerHeader: under.Header().Clone(), length: -1, digest: sha256.New(),
	}
}

// Observed is what a Tee has observed of a response.
type Observed struct {
	Verdict     capture.Verdict // how much of a response there was; never Expired
	Status      int             // final status, 0 if the handler has set none
	Digest      []byte          // the SHA-256 of the body
	Started     bool            // a capture.Writer would have sent a part of the response before Finish
	SetsCookies bool            // a capture.Writer's Response would have left out cookies

	header http.Header
}

// HeaderAtStatus returns a copy of the header as it was when the handler set the status.
func (o *Observed) HeaderAtStatus() http.Header { return o.header }

// End stops observing. A body longer than limit is Partial. What a goroutine left behind still writes is passed on.
func (t *Tee) End(limit int) Observed {
	answered := !t.writtenBefore && capture.IsAnswered(t.under)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	verdict := t.judge(answered, limit)
	if t.status != 0 {
		trailers := response.Trailers(t.header["Trailer"], t.outerHeader, t.under.Header())
		_, cookies := response.WithoutCookies(trailers, false)
		t.setsCookies = t.setsCookies || cookies
	}
	return Observed{
		Verdict: verdict, Status: t.status, Digest: t.digest.Sum(nil), SetsCookies: t.setsCookies, header: t.header,
		Started: t.flushed || verdict == capture.Partial || verdict == capture.Bypassed,
	}
}

// judge is called with mu locked. answered reports whether the underlying writer was written to since NewTee.
func (t *Tee) judge(answered bool, limit int) capture.Verdict {
	byTee := t.status != 0 || t.hijacked
	switch {
	case answered && !byTee:
		return capture.Bypassed
	case t.hijacked:
		return capture.Partial
	case t.status == 0 && capture.WhyLeftOpen(t.under) != nil:
		return capture.LeftOpen
	case t.status == 0:
		t.noteStatus(http.StatusOK)
	}
	hasBody := !t.isHEAD && response.BodyAllowed(t.status)
	switch {
	case hasBody && t.length >= 0 && t.written != t.length:
		return capture.Broken
	case t.written > int64(limit), t.status == http.StatusSwitchingProtocols:
		return capture.Partial
	}
	return capture.Whole
}

// Header returns the underlying writer's header.
func (t *Tee) Header() http.Header { return t.under.Header() }

// WriteHeader passes the status on, and observes a final one.
func (t *Tee) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		t.observeStatus(status)
	}
	t.under.WriteHeader(status)
}

func (t *Tee) observeStatus(status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended && t.status == 0 {
		t.noteStatus(status)
	}
}

// noteStatus is called with mu locked. It notes the final status, and what the header has at that time.
func (t *Tee) noteStatus(status int) {
	h := t.under.Header()
	_, t.setsCookies = response.Storable(response.Changed(t.outerHeader, response.Snapshot(h)), h["Connection"], false)
	t.status, t.header = status, h.Clone()
	if n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		t.length = n
	}
}

// Write passes p on, and observes what the underlying writer has accepted of it.
func (t *Tee) Write(p []byte) (int, error) {
	t.observeStatus(http.StatusOK)
	n, err := t.under.Write(p)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended && n > 0 {
		t.digest.Write(p[:n])
		t.written += int64(n)
	}
	return n, err
}

// WriteString is Write.
func (t *Tee) WriteString(s string) (int, error) { return t.Write([]byte(s)) }

// FlushError passes the call on. It returns http.ErrNotSupported where http.ResponseController would.
func (t *Tee) FlushError() error {
	if capture.CanFlush(t.under) {
		t.observeStatus(http.StatusOK)
		t.observeFlush()
	}
	return http.NewResponseController(t.under).Flush()
}

func (t *Tee) observeFlush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flushed = true
}

// Flush is FlushError without its error.
func (t *Tee) Flush() { _ = t.FlushError() }

// Hijack passes the call on, and observes whether it succeeds.
func (t *Tee) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(t.under).Hijack()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hijacked = t.hijacked || err == nil
	return conn, buf, err
}

// Push passes the call on. It returns http.ErrNotSupported where the underlying writer cannot push.
func (t *Tee) Push(target string, opts *http.PushOptions) error {
	if pusher, ok := t.under.(http.Pusher); ok {
		return pusher.Push(target, opts)
	}
	return http.ErrNotSupported
}

// CloseNotify passes the call on, or returns nil where the underlying writer has no such method. It is deprecated and
// still used: gin's Stream panics without it.
func (t *Tee) CloseNotify() <-chan bool {
	if notifier, ok := t.under.(interface{ CloseNotify() <-chan bool }); ok {
		return notifier.CloseNotify()
	}
	return nil
}

// Underlying returns the writer that NewTee was given.
func (t *Tee) Underlying() http.ResponseWriter { return t.under }

// SetReadDeadline passes the call on.
func (t *Tee) SetReadDeadline(deadline time.Time) error {
	return http.NewResponseController(t.under).SetReadDeadline(deadline)
}

// SetWriteDeadline passes the call on.
func (t *Tee) SetWriteDeadline(deadline time.Time) error {
	return http.NewResponseController(t.under).SetWriteDeadline(deadline)
}

// EnableFullDuplex passes the call on.
func (t *Tee) EnableFullDuplex() error { return http.NewResponseController(t.under).EnableFullDuplex() }
