package capture

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// This file has what http.ResponseController calls beside Write.

// Flush is FlushError without its error.
func (w *Writer) Flush() { _ = w.FlushError() }

// FlushError sends what was written so far. It returns http.ErrNotSupported, and sends nothing, if the underlying writer
// cannot flush. Between Mark and Fix it sends nothing.
func (w *Writer) FlushError() error {
	w.gate.enter()
	defer w.gate.leave()
	switch {
	case w.gate.closed:
		return ErrReturned
	case w.fixed:
		return ErrAnswered
	case w.hijacked:
		return http.ErrHijacked
	case !canFlush(w.w):
		return http.ErrNotSupported
	case w.status == 0:
		w.writeHeader(http.StatusOK)
	}
	if w.mark != nil { // nothing leaves before Fix, and then all of it goes out together
		return nil
	}
	if !w.startSending(nil) {
		return ErrReturned
	}
	switch err := w.passFlush(); {
	case w.gate.closed:
		return ErrReturned
	case w.overflow:
		return err
	}
	return nil
}

func (w *Writer) passFlush() error {
	w.gate.beginCall()
	defer w.gate.endCall()
	return http.NewResponseController(w.w).Flush()
}

// Hijack hands the connection over, after what was written so far. What is written to the connection is not stored.
// Between Mark and Fix it returns http.ErrNotSupported.
func (w *Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.gate.enter()
	defer w.gate.leave()
	switch {
	case w.gate.closed:
		return nil, nil, ErrReturned
	case w.fixed:
		return nil, nil, ErrAnswered
	case w.mark != nil: // what is written to the connection could not be taken back
		return nil, nil, http.ErrNotSupported
	}
	if w.status != 0 && canHijack(w.w) && !w.startSending(nil) {
		return nil, nil, ErrReturned
	}
	conn, buf, err := w.passHijack()
	switch {
	case err != nil:
		return conn, buf, err
	case w.gate.closed: // the serving goroutine did not know of it when it decided about the key
		_ = conn.Close()
		return nil, nil, ErrReturned
	}
	w.observer.Sending()
	w.state, w.hijacked = sent, true
	return conn, buf, nil
}

func (w *Writer) passHijack() (net.Conn, *bufio.ReadWriter, error) {
	w.gate.beginCall()
	defer w.gate.endCall()
	return http.NewResponseController(w.w).Hijack()
}

// SetReadDeadline passes the call on. It returns ErrReturned after Seal and Abort; a call that began
// before may take effect after them.
func (w *Writer) SetReadDeadline(deadline time.Time) error {
	if w.gate.isClosed() {
		return ErrReturned
	}
	return http.NewResponseController(w.w).SetReadDeadline(deadline)
}

// SetWriteDeadline passes the call on. It returns ErrReturned after Seal and Abort.
func (w *Writer) SetWriteDeadline(deadline time.Time) error {
	if w.gate.isClosed() {
		return ErrReturned
	}
	return http.NewResponseController(w.w).SetWriteDeadline(deadline)
}

// EnableFullDuplex passes the call on. It returns ErrReturned after Seal and Abort.
func (w *Writer) EnableFullDuplex() error {
	if w.gate.isClosed() {
		return ErrReturned
	}
	return http.NewResponseController(w.w).EnableFullDuplex()
}

// Push passes the call on. It returns http.ErrNotSupported where the underlying writer cannot push, as with HTTP/1.1,
// and ErrReturned after Seal and Abort.
func (w *Writer) Push(target string, opts *http.PushOptions) error {
	if w.gate.isClosed() {
		return ErrReturned
	}
	if pusher, ok := w.w.(http.Pusher); ok {
		return pusher.Push(target, opts)
	}
	return http.ErrNotSupported
}

// canFlush reports whether the Flush of http.ResponseController would find a way.
func canFlush(under http.ResponseWriter) bool {
	return wraps(under, func(w http.ResponseWriter) bool {
		switch w.(type) {
		case interface{ FlushError() error }, http.Flusher:
			return true
		}
		return false
	})
}

// canHijack reports the same of Hijack.
func canHijack(under http.ResponseWriter) bool {
	return wraps(under, func(w http.ResponseWriter) bool {
		_, ok := w.(http.Hijacker)
		return ok
	})
}

// isAnswered reports whether a writer says that it was written to. The writers of gin and negroni can say it.
func isAnswered(under http.ResponseWriter) bool {
	return wraps(under, func(w http.ResponseWriter) bool {
		writer, ok := w.(interface{ Written() bool })
		return ok && writer.Written()
	})
}

// wraps reports whether w, or a writer that it wraps, has the property. A Writer and a Tee decide nothing: what they write
// to decides.
func wraps(w http.ResponseWriter, has func(http.ResponseWriter) bool) bool {
	for {
		if outer, ok := w.(interface{ under() http.ResponseWriter }); ok {
			w = outer.under()
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
