package capture

import (
	"crypto/sha256"
	"hash"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/onceguard/onceguard/middleware/internal/response"
)

// Tee passes a handler's response on at once, unchanged, and takes down what it was: status, length and digest. It holds
// nothing back, and returns what the underlying writer returns. The handler gets its Writer.
//
// Like a [Writer] it has no Unwrap, so that nothing is written around it.
type Tee struct {
	w        http.ResponseWriter // the underlying writer
	head     bool                // the request is a HEAD
	answered bool                // at NewTee the underlying writer reported that it was written to
	before   int                 // Set-Cookie lines of the outer middlewares

	mu       sync.Mutex // guards the fields below; not held in a call to w
	ended    bool       // End was called: nothing is taken down any more
	verdict  Verdict    // of End
	status   int        // final status, 0 until the handler has set it
	length   int64      // Content-Length, -1 if there is none
	written  int64      // bytes of the body that w has accepted
	digest   hash.Hash  // of those bytes
	hijacked bool
	flushed  bool
	cookies  bool // the handler has set one
}

// NewTee returns a Tee for the response to r that is written to under.
func NewTee(under http.ResponseWriter, r *http.Request) *Tee {
	return &Tee{
		w: under, head: r.Method == http.MethodHead, answered: isAnswered(under), before: len(under.Header()["Set-Cookie"]),
		length: -1, digest: sha256.New(),
	}
}

// End ends the notes and returns how much of a response there was; a body longer than limit counts as Partial. It never
// returns Expired. A handler that still writes then does so as without a Tee.
func (t *Tee) End(limit int) Verdict {
	bypassed := !t.answered && isAnswered(t.w)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.verdict = t.judge(bypassed, limit)
	return t.verdict
}

// judge holds mu.
func (t *Tee) judge(bypassed bool, limit int) Verdict {
	switch {
	case t.status == 0 && !t.hijacked && bypassed:
		return Bypassed
	case t.hijacked:
		return Partial
	case t.status == 0:
		t.status = http.StatusOK
	}
	switch {
	case t.length >= 0 && t.written != t.length && !t.head && response.BodyAllowed(t.status):
		return Broken
	case t.written > int64(limit), t.status == http.StatusSwitchingProtocols:
		return Partial
	}
	return Whole
}

// Status returns the final status, 0 if the handler has set none.
func (t *Tee) Status() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.status
}

// Started reports, after End, whether a Writer would have sent a part of the response before the handler returned.
func (t *Tee) Started() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.flushed || t.verdict == Partial || t.verdict == Bypassed
}

// SetCookies reports whether the handler has set a cookie.
func (t *Tee) SetCookies() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cookies
}

// Digest returns the SHA-256 of the body. It must be called after End.
func (t *Tee) Digest() []byte { return t.digest.Sum(nil) }

func (t *Tee) under() http.ResponseWriter { return t.w }

// Header returns the underlying writer's header.
func (t *Tee) Header() http.Header { return t.w.Header() }

// WriteHeader takes down a final status, and passes it on.
func (t *Tee) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		t.noteStatus(status)
	}
	t.w.WriteHeader(status)
}

func (t *Tee) noteStatus(status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || t.status != 0 {
		return
	}
	h := t.w.Header()
	t.status, t.cookies = status, len(h["Set-Cookie"]) > t.before
	if n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		t.length = n
	}
}

// Write passes p on, and takes down what the underlying writer has accepted of it.
func (t *Tee) Write(p []byte) (int, error) {
	t.noteStatus(http.StatusOK)
	n, err := t.w.Write(p)
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
	if canFlush(t.w) {
		t.noteStatus(http.StatusOK)
		t.noteFlush()
	}
	return http.NewResponseController(t.w).Flush()
}

func (t *Tee) noteFlush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flushed = true
}

// SetReadDeadline passes the call on.
func (t *Tee) SetReadDeadline(deadline time.Time) error {
	return http.NewResponseController(t.w).SetReadDeadline(deadline)
}

// SetWriteDeadline passes the call on.
func (t *Tee) SetWriteDeadline(deadline time.Time) error {
	return http.NewResponseController(t.w).SetWriteDeadline(deadline)
}

// EnableFullDuplex passes the call on.
func (t *Tee) EnableFullDuplex() error { return http.NewResponseController(t.w).EnableFullDuplex() }
