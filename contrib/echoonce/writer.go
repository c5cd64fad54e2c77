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
	open     bool // nobody has answered: an outer middleware or echo itself will
	bypassed bool // and the middleware is to store a tombstone
}

// WriteHeader drops a 1xx status, which echo would take for the final one.
func (w *outerWriter) WriteHeader(status int) {
	if !w.open && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.Response.WriteHeader(status)
	}
}

// Unwrap returns the response, for http.ResponseController.
func (w *outerWriter) Unwrap() http.ResponseWriter { return w.Response }

// Written reports to the middleware whether somebody has answered, or will, on this writer.
func (w *outerWriter) Written() bool { return w.bypassed || w.Committed }

// writer is between the response of a protected handler and the ResponseWriter that the middleware gives to its
// handler. It notices when a journal's transaction was rolled back, and with it the response: the middleware's writer
// has no status then, and echo must not take the response for committed any more.
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

// hasAnswered reports whether the handler has.
func (w *writer) hasAnswered() bool { return w.response.Committed || w.hijacked }

func (w *writer) rolledBack() bool { return w.response.Committed && !w.hijacked && !w.hasStatus() }

// forgetRolledBack makes the response uncommitted if it was rolled back.
func (w *writer) forgetRolledBack() {
	if w.rolledBack() {
		w.response.Committed, w.response.Status, w.response.Size = false, http.StatusOK, 0
	}
}

// answerRolledBack is called at the end. echo has dropped a status that the handler has set, or the handler has set
// none, after its transaction was rolled back: it is a failure.
func (w *writer) answerRolledBack() {
	if w.rolledBack() {
		w.ResponseWriter.WriteHeader(http.StatusInternalServerError)
	}
}

// Write answers 500 if echo has dropped the status because of what was rolled back.
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
