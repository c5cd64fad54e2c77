package capture

// This file contains the methods that http.ResponseController calls, and Push.

import (
	"bufio"
	"net"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/journal"
)

// Flush is FlushError without its error.
func (w *Writer) Flush() { _ = w.FlushError() }

// FlushError sends what was written so far. If the underlying writer cannot flush, it sends nothing and returns
// http.ErrNotSupported. Between BeginPart and Committed it sends nothing and returns nil.
func (w *Writer) FlushError() error {
	w.gate.enter()
	defer w.gate.leave()
	switch {
	case w.gate.closed:
		return ErrReturned
	case w.final:
		return journal.ErrAnswered
	case w.hijacked:
		return http.ErrHijacked
	case !CanFlush(w.under):
		return http.ErrNotSupported
	case w.status == 0:
		w.setStatus(http.StatusOK)
	}
	if w.part != nil { // the whole response is sent after Committed
		return nil
	}
	if w.state == unsent {
		w.fixContentType()
	}
	if cutOff := w.startSending(); cutOff {
		return ErrReturned
	}
	var err error
	switch cutOff := w.gate.call(func() { err = http.NewResponseController(w.under).Flush() }); {
	case cutOff:
		return ErrReturned
	case w.overflow:
		return err
	}
	return nil // buffered: the client's retry gets it even if the client has disconnected
}

// Hijack sends what was written so far, and hands the connection over. What is written to the connection is not stored.
// Between BeginPart and Committed it returns http.ErrNotSupported.
func (w *Writer) Hijack() (conn net.Conn, buf *bufio.ReadWriter, err error) {
	w.gate.enter()
	defer w.gate.leave()
	switch {
	case w.gate.closed:
		return nil, nil, ErrReturned
	case w.final:
		return nil, nil, journal.ErrAnswered
	case w.part != nil: // what is written to the connection could not be undone
		return nil, nil, http.ErrNotSupported
	}
	if w.status != 0 && wrapsA[http.Hijacker](w.under) { // else it fails below
		if cutOff := w.startSending(); cutOff {
			return nil, nil, ErrReturned
		}
	}
	switch cutOff := w.gate.call(func() { conn, buf, err = http.NewResponseController(w.under).Hijack() }); {
	case err != nil:
		return conn, buf, err
	case cutOff: // the serving goroutine decided about the key without knowing of the hijack
		_ = conn.Close()
		return nil, nil, ErrReturned
	}
	w.observer.Sending()
	w.state, w.hijacked = sent, true
	return conn, buf, nil
}

// SetReadDeadline passes the call on. It returns ErrReturned after Finish and Abort. A call that has begun before may
// take effect after them.
func (w *Writer) SetReadDeadline(deadline time.Time) error {
	if w.gate.isClosed() {
		return ErrReturned
	}
	return http.NewResponseController(w.under).SetReadDeadline(deadline)
}

// SetWriteDeadline passes the call on. It returns ErrReturned after Finish and Abort.
func (w *Writer) SetWriteDeadline(deadline time.Time) error {
	if w.gate.isClosed() {
		return ErrReturned
	}
	return http.NewResponseController(w.under).SetWriteDeadline(deadline)
}

// EnableFullDuplex passes the call on. It returns ErrReturned after Finish and Abort.
func (w *Writer) EnableFullDuplex() error {
	if w.gate.isClosed() {
		return ErrReturned
	}
	return http.NewResponseController(w.under).EnableFullDuplex()
}

// Push passes the call on. It returns http.ErrNotSupported where the underlying writer cannot push, as with HTTP/1.1,
// and ErrReturned after Finish and Abort.
func (w *Writer) Push(target string, opts *http.PushOptions) error {
	if w.gate.isClosed() {
		return ErrReturned
	}
	if pusher, ok := w.under.(http.Pusher); ok {
		return pusher.Push(target, opts)
	}
	return http.ErrNotSupported
}

// CanFlush reports whether the Flush of http.ResponseController would find a method to call.
func CanFlush(under http.ResponseWriter) bool {
	return wrapsA[http.Flusher](under) || wrapsA[interface{ FlushError() error }](under)
}

// wrapsA reports whether w, or a writer that it wraps, is a T.
func wrapsA[T any](w http.ResponseWriter) bool {
	return wraps(w, func(w http.ResponseWriter) bool {
		_, ok := w.(T)
		return ok
	})
}

// IsAnswered reports whether a writer has a method Written, as those of gin and negroni have, that returns true.
func IsAnswered(under http.ResponseWriter) bool {
	return wraps(under, func(w http.ResponseWriter) bool {
		writer, ok := w.(interface{ Written() bool })
		return ok && writer.Written()
	})
}

// WhyLeftOpen returns why the handler has left the response to an outer middleware, or nil if it has not. The adapter of a
// framework knows: it gives the middleware an underlying writer with the method LeftOpen.
func WhyLeftOpen(under http.ResponseWriter) error {
	if w, ok := under.(interface{ LeftOpen() error }); ok {
		return w.LeftOpen()
	}
	return nil
}

// wraps reports whether w, or a writer that it wraps, has the property. For a Writer or a Tee, its underlying writer
// decides.
func wraps(w http.ResponseWriter, has func(http.ResponseWriter) bool) bool {
	for {
		if outer, ok := w.(interface{ Underlying() http.ResponseWriter }); ok {
			w = outer.Underlying()
			continue
		}
		if has(w) {
			return true
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = wrapper.Unwrap()
	}
}
