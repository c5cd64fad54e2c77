package middleware

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// recorder is the ResponseWriter that a handler writes to. It holds the response back until it is stored. It lets it
// through from when the handler flushes or hijacks, or has written more than is kept; then it keeps a copy of what it
// can.
//
// As long as the copy is whole, the handler does not learn that the client has left: it shall finish the response, for
// the client's retry. An error in place of it would make a handler stop, and what it has written so far look like all
// of it.
//
// It embeds nothing and has no Unwrap, so that nothing slips past it; io.Copy finds no ReadFrom and comes through
// Write. What it has beyond Write behaves as that of net/http's own writer.
type recorder struct {
	w     http.ResponseWriter
	exec  *Execution
	head  bool // a HEAD request: its response has no body on the wire
	http2 bool // or newer
	limit int

	before  http.Header // what the outer middlewares had set
	status  int         // the final one, 0 until the handler has said it
	header  http.Header // as it was then; later changes are trailers, or nothing
	length  int64       // its Content-Length, -1 if there is none
	chunked bool        // the Content-Length is not sent
	body    []byte

	written  int64 // what the handler wanted to write
	sent     bool  // header, and the body so far, have been let through
	overflow bool  // body is not whole
	hijacked bool
}

func newRecorder(w http.ResponseWriter, r *http.Request, exec *Execution, limit int) *recorder {
	return &recorder{
		w: w, exec: exec, head: r.Method == http.MethodHead, http2: r.ProtoMajor >= 2, limit: limit,
		before: w.Header().Clone(), length: -1,
	}
}

// Header returns the outer header, so that the handler sees and changes what the outer middlewares have set.
func (r *recorder) Header() http.Header { return r.w.Header() }

// WriteHeader takes the header for the response, but for an informational status, which goes out at once and is never
// the response's (RFC 9110 section 15.2).
func (r *recorder) WriteHeader(status int) {
	switch {
	case r.hijacked, r.status != 0:
	case status < 100, status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // as net/http does
	case status < 200 && (status != http.StatusSwitchingProtocols || r.http2): // HTTP/2 has no 101, RFC 9113 section 8.6
		r.w.WriteHeader(status)
	default:
		r.status = status
		r.header = r.Header().Clone()
		if r.header == nil {
			r.header = http.Header{}
		}
		r.readLength()
	}
}

// readLength takes the Content-Length. As in net/http one that is no number is none, and one beside a Transfer-Encoding
// is not sent, yet still counts what is written.
func (r *recorder) readLength() {
	text := r.header.Get("Content-Length")
	if text == "" {
		return
	}
	coding := r.header.Get("Transfer-Encoding")
	r.chunked = !r.http2 && coding != "" && coding != "identity"
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && n >= 0 {
		r.length = n
	}
	if r.length < 0 || r.chunked {
		r.header.Del("Content-Length")
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	if err := r.admit(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	switch {
	case r.overflow:
	case len(r.body)+len(p) > r.limit:
		r.commit(p)
		r.body, r.overflow = nil, true
	default:
		r.body = append(grow(r.body, len(p), r.limit), p...)
	}
	if r.sent {
		if n, err := r.w.Write(p); r.overflow {
			return n, err
		}
	}
	return len(p), nil
}

func (r *recorder) WriteString(s string) (int, error) { return r.Write([]byte(s)) }

// admit tells what the bare writer would say to n bytes more.
func (r *recorder) admit(n int) error {
	if r.hijacked {
		return http.ErrHijacked
	}
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	switch {
	case n == 0:
		return nil
	case !bodyAllowed(r.status):
		return http.ErrBodyNotAllowed
	}
	r.written += int64(n)
	if r.length >= 0 && r.written > r.length {
		return http.ErrContentLength
	}
	return nil
}

// send lets the header and the body so far through. The next bytes only serve to tell the Content-Type.
func (r *recorder) send(next []byte) {
	if r.sent {
		return
	}
	r.sent = true
	r.sniff(next)
	h := r.Header()
	end := maps.Clone(h) // with the handler's own slices: it may still change what is in them
	replace(h, r.header)
	announce(h, end)
	r.w.WriteHeader(r.status)
	if len(r.body) > 0 {
		_, _ = r.w.Write(r.body) // the client may have left; the response is stored all the same
	}
	replace(h, end) // trailers are taken from it
}

// commit is send before the response is stored: from then on the key is never freed.
func (r *recorder) commit(next []byte) {
	if !r.sent {
		r.exec.commit()
		r.send(next)
	}
}

// sniff sets the Content-Type as net/http would, so that it is stored.
func (r *recorder) sniff(next []byte) {
	const considered = 512
	start := r.body[:min(len(r.body), considered)]
	if more := min(considered-len(start), len(next)); more > 0 {
		start = append(start[:len(start):len(start)], next[:more]...)
	}
	_, typed := r.header["Content-Type"]
	coded := r.header.Get("Content-Encoding") != "" || r.header.Get("Transfer-Encoding") != "" && !r.http2
	if !typed && !coded && len(start) > 0 {
		r.header.Set("Content-Type", http.DetectContentType(start))
	}
}

// silent tells whether the handler has said nothing yet, not even a status.
func (r *recorder) silent() bool { return r.status == 0 && !r.hijacked }

// finish is called when the handler has returned: silence is 200 then.
func (r *recorder) finish() {
	if r.silent() {
		r.WriteHeader(http.StatusOK)
	}
	if !r.sent && !r.hijacked {
		r.sniff(nil)
	}
}

// giveUp answers for a handler that said nothing when its context was over: silence is no 200 then. If the outer
// deadline has passed, then whoever has set it comes first: what http.TimeoutHandler answers makes this one void.
func (r *recorder) giveUp(outer context.Context) {
	if deadline, ok := outer.Deadline(); ok && !time.Now().Before(deadline) {
		<-outer.Done()
	}
	r.sent, r.status = true, http.StatusGatewayTimeout
	r.w.WriteHeader(r.status)
}

// withdraw takes back a response that the handler has begun and not finished, so that whoever answers instead starts
// from the header that was there before.
func (r *recorder) withdraw() {
	if !r.sent && r.status != 0 {
		replace(r.Header(), r.before)
	}
}

// broken tells whether fewer or more bytes came than Content-Length says.
func (r *recorder) broken() bool {
	if r.hijacked || r.head || !bodyAllowed(r.status) || r.length < 0 {
		return false
	}
	return r.written > r.length || r.written < r.length && !r.chunked
}

// whole tells whether the response can be replayed. A 101 is about its connection, like what is hijacked.
func (r *recorder) whole() bool {
	return !r.hijacked && r.status != http.StatusSwitchingProtocols && !r.overflow && !r.broken()
}

// seen returns the status that the client has got, 0 if none.
func (r *recorder) seen() int {
	if !r.sent {
		return 0
	}
	return r.status
}

// FlushError lets the response through, if what is below can flush.
func (r *recorder) FlushError() error {
	switch {
	case r.hijacked:
		return http.ErrHijacked
	case !canFlush(r.w):
		return http.ErrNotSupported
	case r.status == 0:
		r.WriteHeader(http.StatusOK)
	}
	r.commit(nil)
	if err := http.NewResponseController(r.w).Flush(); r.overflow {
		return err
	}
	return nil
}

func (r *recorder) Flush() { _ = r.FlushError() }

// canFlush tells what http.ResponseController.Flush would find, without flushing.
func canFlush(w http.ResponseWriter) bool {
	return provided(w, func(w http.ResponseWriter) bool {
		switch w.(type) {
		case interface{ FlushError() error }, http.Flusher:
			return true
		}
		return false
	})
}

// provided tells whether w, or what it wraps, has what is looked for.
func provided(w http.ResponseWriter, has func(http.ResponseWriter) bool) bool {
	for !has(w) {
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = wrapper.Unwrap()
	}
	return true
}
