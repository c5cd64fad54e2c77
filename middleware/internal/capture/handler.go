package capture

// This file contains the methods of http.ResponseWriter, which the handler calls. All but Header enter the gate. The
// other functions are called inside the gate, or by the serving goroutine after Finish.

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// Header returns the underlying writer's header, so that the handler sees and changes what the outer middlewares have
// set. The map itself is not guarded, as with net/http: a goroutine that is left behind must not touch it.
func (w *Writer) Header() http.Header { return w.under.Header() }

// WriteHeader sets the status of the response, and keeps the header as it is now. A 1xx status is not part of the
// response and is sent at once (RFC 9110 section 15.2). Between BeginPart and Committed it is dropped.
func (w *Writer) WriteHeader(status int) {
	w.gate.enter()
	defer w.gate.leave()
	isFinal101 := status == http.StatusSwitchingProtocols && !w.http2 // HTTP/2 has no 101, RFC 9113 section 8.6
	informational := status < 200 && !isFinal101
	switch {
	case w.gate.closed, w.final, w.hijacked, w.status != 0: // ignored, as by net/http
	case status < 100, status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // as net/http does
	case informational && w.part != nil: // dropped: it could not be undone, and a client can do without it
	case informational:
		w.pass1xx(status)
	default:
		w.setStatus(status)
	}
}

// pass1xx sends a 1xx status. An outer writer may take it for the final one and change the header, as chi's Compress does.
// Such changes are sent with the final status, and are neither the handler's nor stored.
func (w *Writer) pass1xx(status int) {
	w.sent1xx, w.in1xx = true, true
	w.handlerHeader = maps.Clone(w.Header())
	defer func() { // also if the underlying writer panics
		if !w.gate.closed { // else the serving goroutine does it
			w.end1xx()
		}
	}()
	w.passStatus(status)
}

// end1xx moves what the underlying writer has changed in the header during a 1xx to outerChanges, and gives the handler its
// own header back.
func (w *Writer) end1xx() {
	if !w.in1xx {
		return
	}
	h := w.Header()
	w.outerChanges = append(w.outerChanges, response.Changed(w.handlerHeader, response.Snapshot(h))...)
	response.Replace(h, w.handlerHeader)
	w.handlerHeader, w.in1xx = nil, false
}

// setStatus sets a final status, and keeps the header as it is now. If the underlying writer panics, no status is set.
func (w *Writer) setStatus(status int) {
	header := w.handlerHeader // that of a 1xx which was cut off
	if header == nil {
		header = w.Header()
	}
	w.status = status
	w.part.touch()
	w.headerAtStatus = response.Snapshot(header)
	if !w.http2 && response.First(w.headerAtStatus, "Transfer-Encoding") != "" {
		w.setContentType(nil) // net/http detects none then, and the Transfer-Encoding is not stored
	}
	w.readLength()
}

// readLength reads Content-Length from the header. As in net/http, a malformed one is dropped. One beside a
// Transfer-Encoding is not sent but still limits what can be written.
func (w *Writer) readLength() {
	text := response.First(w.headerAtStatus, "Content-Length")
	if text == "" {
		return
	}
	coding := response.First(w.headerAtStatus, "Transfer-Encoding")
	w.chunked = !w.http2 && coding != "" && coding != "identity"
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && n >= 0 {
		w.length = n
	}
	if w.length < 0 || w.chunked {
		w.headerAtStatus = slices.DeleteFunc(w.headerAtStatus, func(c response.Change) bool { return c.Name == "Content-Length" })
	}
}

// Write appends p to the response. It returns the errors of net/http's writer, and ErrReturned after Finish and Abort.
func (w *Writer) Write(p []byte) (int, error) {
	w.gate.enter()
	defer w.gate.leave()
	if err := w.admit(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	w.part.touch()
	if err := w.bufferBody(p); err != nil {
		return 0, err
	}
	if w.state == unsent {
		return len(p), nil
	}
	switch n, cutOff, err := w.pass(p); {
	case cutOff:
		return n, ErrReturned
	case w.overflow:
		return n, err
	}
	return len(p), nil // buffered: the client's retry gets it even if the client has disconnected
}

// WriteString is Write.
func (w *Writer) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// admit checks and counts n more bytes of the body, and sets the status 200 if none is set. Its errors are those of
// Write.
func (w *Writer) admit(n int) error {
	switch {
	case w.gate.closed:
		return ErrReturned
	case w.final:
		return journal.ErrAnswered
	case w.hijacked:
		return http.ErrHijacked
	case w.status == 0:
		w.setStatus(http.StatusOK)
	}
	switch {
	case n == 0:
		return nil
	case !response.BodyAllowed(w.status):
		return http.ErrBodyNotAllowed
	}
	w.written += int64(n)
	if w.length >= 0 && w.written > w.length {
		return http.ErrContentLength
	}
	return nil
}

// bufferBody appends p to the buffer. When the body no longer fits, it sends what is buffered and buffers no more;
// Write then sends p itself. Between BeginPart and Committed it sends nothing and returns ErrTooLong.
func (w *Writer) bufferBody(p []byte) error {
	length := len(w.body) + len(p)
	switch {
	case w.overflow:
		return nil
	case length <= w.limit:
		if length > cap(w.body) { // append would make it up to twice as large as the limit
			w.body = append(make([]byte, 0, min(w.limit, max(512, length, 2*cap(w.body)))), w.body...)
		}
		w.body = append(w.body, p...)
		return nil
	case w.part != nil:
		w.part.tooLong = true
		return journal.ErrTooLong
	}
	w.overflow = true // set before startSending, which can block on a slow client
	if cutOff := w.startSending(); cutOff {
		return ErrReturned
	}
	w.body = nil
	return nil
}

// startSending sends the header and the body so far, while the handler still runs. cutOff is as in gate.call.
func (w *Writer) startSending() (cutOff bool) {
	if w.state != unsent {
		return false
	}
	w.observer.Sending()
	defer w.endSending()
	return w.send()
}

// endSending moves to the state sent, and gives the handler its own header back, even if the underlying writer
// panicked.
func (w *Writer) endSending() {
	if w.gate.closed {
		return
	}
	if w.exposed {
		response.Replace(w.Header(), w.handlerHeader)
	}
	w.handlerHeader, w.state = nil, sent
}
