package capture

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/onceguard/onceguard/middleware/internal/buffer"
	"github.com/onceguard/onceguard/middleware/internal/response"
)

// This file has the methods of http.ResponseWriter, which the handler calls. They hold the gate.

// Header returns the underlying writer's header. The map itself is not guarded, as with net/http: a goroutine that is
// left behind must not touch it. It is the outer header, so that the handler sees and changes what the outer
// middlewares have set.
func (w *Writer) Header() http.Header { return w.w.Header() }

// WriteHeader sets the status of the response, and keeps the header as it is now. A 1xx status is not part of the
// response and is sent at once (RFC 9110 section 15.2) or, between Mark and Fix, not at all.
func (w *Writer) WriteHeader(status int) {
	w.gate.enter()
	defer w.gate.leave()
	w.writeHeader(status)
}

func (w *Writer) writeHeader(status int) {
	switch {
	case w.gate.closed, w.fixed, w.hijacked, w.status != 0: // ignored, as net/http does
	case status < 100, status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // as net/http does
	case status < 200 && (status != http.StatusSwitchingProtocols || w.http2): // HTTP/2 has no 101, RFC 9113 section 8.6
		if w.mark != nil { // it could not be taken back, and a client can do without it
			return
		}
		w.sent1xx = true
		w.passStatus(status)
	default:
		w.setStatus(status)
	}
}

// setStatus sets a final status.
func (w *Writer) setStatus(status int) {
	w.status = status
	w.mark.touch()
	w.header = w.scratch.Take(w.Header())
	w.readLength()
}

// readLength reads Content-Length from the header. As in net/http a malformed one is dropped, and one beside a
// Transfer-Encoding is not sent but still limits what can be written.
func (w *Writer) readLength() {
	text := response.First(w.header, "Content-Length")
	if text == "" {
		return
	}
	coding := response.First(w.header, "Transfer-Encoding")
	w.chunked = !w.http2 && coding != "" && coding != "identity"
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && n >= 0 {
		w.length = n
	}
	if w.length < 0 || w.chunked {
		w.header = slices.DeleteFunc(w.header, func(c response.Change) bool { return c.Name == "Content-Length" })
	}
}

// Write appends p to the response. It returns the errors of net/http's writer, and ErrReturned after Seal and Abort.
func (w *Writer) Write(p []byte) (int, error) {
	w.gate.enter()
	defer w.gate.leave()
	if err := w.admit(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	w.mark.touch()
	switch {
	case w.overflow:
	case len(w.body.Bytes())+len(p) > w.limit && w.mark != nil:
		w.mark.tooLong = true
		return 0, ErrTooLong
	case len(w.body.Bytes())+len(p) > w.limit:
		w.overflow = true // set before startSending, which can block on a slow client
		if !w.startSending(p) {
			return 0, ErrReturned
		}
		w.body = nil
	default:
		if w.body == nil {
			w.body = buffer.New()
		}
		w.body.Append(p, w.limit)
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
	return len(p), nil
}

// WriteString is Write.
func (w *Writer) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// admit returns the error with which net/http's writer would refuse n more bytes of the body, and counts them. It sets the
// status 200 if none is set.
func (w *Writer) admit(n int) error {
	switch {
	case w.gate.closed:
		return ErrReturned
	case w.fixed:
		return ErrAnswered
	case w.hijacked:
		return http.ErrHijacked
	case w.status == 0:
		w.writeHeader(http.StatusOK)
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

// startSending sends the header and the body so far, while the handler still runs. next is what the handler writes next;
// it is only used to detect the Content-Type. It reports whether the gate is still open.
func (w *Writer) startSending(next []byte) (open bool) {
	if w.state != unsent {
		return true
	}
	w.observer.Sending()
	defer w.restoreHeader()
	w.send(next)
	return !w.gate.closed
}

// restoreHeader gives the handler, which goes on, its own header back. It does so even if the underlying writer panicked.
func (w *Writer) restoreHeader() {
	if w.gate.closed {
		return
	}
	if w.exposed {
		response.Replace(w.Header(), w.handlerHeader)
	}
	w.handlerHeader, w.state = nil, sent
}
