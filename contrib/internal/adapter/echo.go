package adapter

import (
	"bufio"
	"net"
	"net/http"
)

// EchoResponse has the fields of an echo.Response, which echo v4 and v5 have alike.
type EchoResponse struct {
	Status    *int
	Size      *int64
	Committed *bool
}

// EchoWriter is between echo's response in a protected handler and the middleware's ResponseWriter. It notices when a
// journal has rolled back a transaction, and with it the response: then the middleware's writer has no status, and
// echo's response must not stay Committed.
type EchoWriter struct {
	http.ResponseWriter              // the middleware's
	Response            EchoResponse // echo's
	answered            bool         // a final status or a part of the body was written
	hijacked            bool
}

// Unwrap returns the middleware's writer, for http.ResponseController.
func (w *EchoWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// hasStatus reports whether the middleware's writer has a status.
func (w *EchoWriter) hasStatus() bool {
	under, ok := w.ResponseWriter.(interface{ Status() int })
	return !ok || under.Status() != 0
}

// HasAnswered reports whether the handler has answered, and the answer was not rolled back.
func (w *EchoWriter) HasAnswered() bool {
	w.forgetRolledBack()
	return *w.Response.Committed || w.hijacked
}

// isRolledBack reports whether the response was rolled back.
func (w *EchoWriter) isRolledBack() bool { return w.answered && !w.hijacked && !w.hasStatus() }

// forgetRolledBack makes the response uncommitted if it was rolled back.
func (w *EchoWriter) forgetRolledBack() {
	if w.isRolledBack() {
		w.answered = false
		*w.Response.Committed, *w.Response.Status, *w.Response.Size = false, http.StatusOK, 0
	}
}

// AnswerRolledBack answers 500 if the response was rolled back and the handler has not answered again, or has set a
// status that echo has dropped.
func (w *EchoWriter) AnswerRolledBack() {
	if w.isRolledBack() {
		w.ResponseWriter.WriteHeader(http.StatusInternalServerError)
	}
}

// AnswerEarly answers 200 if there is only a 1xx status, which echo takes for the final one.
func (w *EchoWriter) AnswerEarly() {
	if *w.Response.Committed && !w.answered && !w.hijacked {
		w.WriteHeader(http.StatusOK)
	}
}

// WriteHeader writes a status.
func (w *EchoWriter) WriteHeader(status int) {
	w.answered = w.answered || IsFinal(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write writes a part of the body, after the status 500 if echo has dropped the handler's: see AnswerRolledBack.
func (w *EchoWriter) Write(p []byte) (int, error) {
	w.AnswerRolledBack()
	w.answered = true
	return w.ResponseWriter.Write(p)
}

// Hijack is called by http.ResponseController.
func (w *EchoWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.hijacked = w.hijacked || err == nil
	return conn, buf, err
}

// Header is called by echo before it writes a status with a body.
func (w *EchoWriter) Header() http.Header {
	w.forgetRolledBack()
	return w.ResponseWriter.Header()
}

// Answered is in the framework's context once an error is answered, above the response that was sent. It drops what is
// written: echo calls the HTTPErrorHandler for the same error again.
type Answered struct{ http.ResponseWriter }

// Unwrap returns the response that was sent, for http.ResponseController and echo.UnwrapResponse.
func (w Answered) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader does nothing.
func (Answered) WriteHeader(int) {}

// Write drops p.
func (Answered) Write(p []byte) (int, error) { return len(p), nil }
