package ginonce

import (
	"bufio"
	"context"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/onceguard/onceguard/contrib/internal/adapter"
)

// outerWriter is what the middleware writes to: the writer that the outer gin middlewares have left. As with gin, the
// first Write sends the header: until then a gzip middleware may take back its Content-Encoding.
type outerWriter struct {
	gin.ResponseWriter
	adapter.Open
	answered   bool // an outer middleware has answered, and nothing may follow
	hasStatus  bool
	statusOnly bool // the handler has only set the status: an outer middleware or gin itself may answer
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *outerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sets the status. It sends a 1xx status below gin's writers, which would take it for the final one.
func (w *outerWriter) WriteHeader(status int) {
	if !adapter.IsFinal(status) {
		sendEarly(w.ResponseWriter, status)
		return
	}
	w.ResponseWriter.WriteHeader(status)
	w.hasStatus = true
}

// Write drops what the middleware answers when an outer middleware has already answered.
func (w *outerWriter) Write(p []byte) (int, error) {
	if w.answered {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// end sends the header of a response without a body, because an outer middleware must not change what is stored.
func (w *outerWriter) end() {
	if w.hasStatus && !w.statusOnly {
		w.ResponseWriter.WriteHeaderNow()
	}
}

// sendEarly sends a 1xx status on the first writer below that is not gin's. It sends nothing if an outer middleware's
// writer has no Unwrap: a client can do without.
func sendEarly(w http.ResponseWriter, status int) {
	for {
		if _, ok := w.(gin.ResponseWriter); !ok {
			w.WriteHeader(status)
			return
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return
		}
		w = wrapper.Unwrap()
	}
}

// writer is the gin.ResponseWriter of a protected handler. It does what gin's own does, on the ResponseWriter that the
// middleware gives to its handler. As with gin, its methods must not be called concurrently.
type writer struct {
	under    http.ResponseWriter
	outer    gin.ResponseWriter
	ctx      context.Context // of the run
	status   int
	set      bool // by the handler
	size     int  // of the body, -1 until the header is written
	answered bool // a final status or a part of the body was written
	hijacked bool
	shadow   bool
}

const unwritten = -1 // as in gin

// Unwrap returns the middleware's writer, for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.under }

// Header returns the header that WriteHeaderNow or the first Write sends.
func (w *writer) Header() http.Header { return w.under.Header() }

// WriteHeader sets the status. It is written with the body, by WriteHeaderNow, or at the end.
func (w *writer) WriteHeader(status int) {
	if status > 0 && !w.Written() {
		w.status, w.set = status, true
	}
}

// WriteHeaderNow sends the header at once in shadow, as gin's does.
func (w *writer) WriteHeaderNow() {
	w.writeHeader()
	if w.shadow && w.answered {
		w.outer.WriteHeaderNow()
	}
}

func (w *writer) writeHeader() {
	if !w.Written() {
		w.size, w.answered = 0, adapter.IsFinal(w.status)
		w.under.WriteHeader(w.status)
	}
}

// writeStatus is called at the end. A handler that has not set a status leaves it to the middleware: 200, or 504 if its
// context is done.
func (w *writer) writeStatus() {
	if w.set || w.status != http.StatusOK {
		w.writeHeader()
	}
}

// Write sends the header, and writes a part of the body.
func (w *writer) Write(p []byte) (n int, err error) {
	w.writeHeader()
	w.answered = true
	n, err = w.under.Write(p)
	w.size += n
	return n, err
}

// WriteString is Write for a string.
func (w *writer) WriteString(s string) (n int, err error) { return w.Write([]byte(s)) }

// Status returns the status that is set, 200 if none is.
func (w *writer) Status() int {
	w.forgetRolledBack()
	return w.status
}

// Size returns the length of the body so far, -1 until the header is written.
func (w *writer) Size() int {
	w.forgetRolledBack()
	return w.size
}

// Written reports whether the header is written.
func (w *writer) Written() bool { return w.Size() != unwritten }

// forgetRolledBack makes w unwritten again when a journal's transaction was rolled back, and with it the response. The
// middleware's writer has no status then.
func (w *writer) forgetRolledBack() {
	under, ok := w.under.(interface{ Status() int })
	if ok && w.answered && !w.hijacked && under.Status() == 0 {
		w.size, w.status, w.set, w.answered = unwritten, http.StatusOK, false, false
	}
}

// Flush sends what is written so far.
func (w *writer) Flush() { _ = w.FlushError() }

// FlushError is called by http.ResponseController.
func (w *writer) FlushError() error {
	w.writeHeader()
	err := http.NewResponseController(w.under).Flush()
	w.answered = w.answered || err == nil
	return err
}

// Hijack leaves w unwritten if it fails.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(w.under).Hijack()
	if err == nil {
		w.size, w.hijacked = max(w.size, 0), true
	}
	return conn, buf, err
}

// CloseNotify returns a channel that receives when the run is given up. It does not when the client disconnects: the
// response is finished and stored for the client's retry.
func (w *writer) CloseNotify() <-chan bool {
	done := make(chan bool, 1)
	context.AfterFunc(w.ctx, func() { done <- true })
	return done
}

// Pusher returns that of the outer writer.
func (w *writer) Pusher() http.Pusher { return w.outer.Pusher() }
