package echoonce

import (
	"bufio"
	"net"
	"net/http"

	"github.com/labstack/echo/v4"
)

// outerWriter is what the middleware writes to: the response that the outer echo middlewares have.
type outerWriter struct {
	*echo.Response
	open     bool // the handler has not answered: an outer middleware or echo itself will
	bypassed bool // the same, and the middleware is to store a tombstone
}

// WriteHeader drops a 1xx status, which echo would take for the final one.
func (w *outerWriter) WriteHeader(status int) {
	if !w.open && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.Response.WriteHeader(status)
	}
}

// Unwrap returns the response, for http.ResponseController.
func (w *outerWriter) Unwrap() http.ResponseWriter { return w.Response }

// Written reports to the middleware whether others have answered, or will answer, on this writer.
func (w *outerWriter) Written() bool { return w.bypassed || w.Committed }

// writer is between echo's response in a protected handler and the middleware's ResponseWriter. It notices when a
// journal has rolled back a transaction, and with it the response: then the middleware's writer has no status, and
// echo's response must not stay Committed.
type writer struct {
	http.ResponseWriter
	response *echo.Response
	hijacked bool
}

func newWriter(under http.ResponseWriter, outer *echo.Response, e *echo.Echo) *writer {
	w := &writer{ResponseWriter: under}
	w.response = echo.NewResponse(w, e)
	w.response.Status = outer.Status
	return w
}

// Unwrap returns the middleware's writer, for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// hasStatus reports whether the middleware's writer has a status.
func (w *writer) hasStatus() bool {
	under, ok := w.ResponseWriter.(interface{ Status() int })
	return !ok || under.Status() != 0
}

// hasAnswered reports whether the handler has answered.
func (w *writer) hasAnswered() bool { return w.response.Committed || w.hijacked }

// rolledBack reports whether the response was rolled back.
func (w *writer) rolledBack() bool { return w.response.Committed && !w.hijacked && !w.hasStatus() }

// forgetRolledBack makes the response uncommitted if it was rolled back.
func (w *writer) forgetRolledBack() {
	if w.rolledBack() {
		w.response.Committed, w.response.Status, w.response.Size = false, http.StatusOK, 0
	}
}

// answerRolledBack answers 500 if the response was rolled back and the handler has not answered again, or has set a
// status that echo has dropped.
func (w *writer) answerRolledBack() {
	if w.rolledBack() {
		w.ResponseWriter.WriteHeader(http.StatusInternalServerError)
	}
}

// Write writes a part of the body, after the status 500 if echo has dropped the handler's: see answerRolledBack.
func (w *writer) Write(p []byte) (int, error) {
	w.answerRolledBack()
	return w.ResponseWriter.Write(p)
}

// Hijack is called by http.ResponseController.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.hijacked = w.hijacked || err == nil
	return conn, buf, err
}

// Header is called by echo before it writes a status with a body.
func (w *writer) Header() http.Header {
	w.forgetRolledBack()
	return w.ResponseWriter.Header()
}
