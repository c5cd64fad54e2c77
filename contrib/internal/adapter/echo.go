package adapter

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// EchoContext is what the contexts of echo v4 and v5 have alike.
type EchoContext interface {
	Request() *http.Request
	SetRequest(*http.Request)
}

// EchoCall is one request of echo, a Call but for ReadError.
type EchoCall[C EchoContext] struct {
	Package string
	Context C
	Next    func(C) error
	Outer   *Open
	Enter   func(http.ResponseWriter) *EchoWriter // gives the context a response that writes to the writer
	Exit    func()                                // gives the context the outer response again
	Answer  func(error)                           // calls the HTTPErrorHandler

	Err error // of Next
	Ran bool  // and not merely passed
}

// Framework returns echo's context.
func (x *EchoCall[C]) Framework() C { return x.Context }

// Request returns the context's request.
func (x *EchoCall[C]) Request() *http.Request { return x.Context.Request() }

// SetRequest sets it.
func (x *EchoCall[C]) SetRequest(r *http.Request) { x.Context.SetRequest(r) }

// Pass calls the next handlers untouched.
func (x *EchoCall[C]) Pass() { x.Err = x.Next(x.Context) }

// Run calls the next handlers with a response that writes to w.
func (x *EchoCall[C]) Run(w http.ResponseWriter, r *http.Request, shadow bool) {
	x.Ran = true
	request := x.Request()
	inner := x.Enter(w)
	x.SetRequest(r)
	defer func() { // also for the Recover outside
		x.Exit()
		x.SetRequest(request)
	}()
	x.Pass()
	switch {
	case x.Err == nil:
		inner.AnswerRolledBack()
	case inner.HasAnswered():
	case isTimeout(x.Err, request.Context()):
		x.Outer.Leave(errors.New(x.Package + ": the deadline of an outer middleware has passed, which answers the handler's error"))
	default:
		x.Answer(x.Err)
		if !inner.HasAnswered() {
			x.Outer.Leave(errors.New(x.Package + ": the handler returned an error, for which the HTTPErrorHandler wrote nothing, " +
				"and what is written outside of this middleware cannot be stored: mount what renders the error inside, as in " +
				"POST(path, handler, once, render)"))
		}
	}
	if shadow { // otherwise the middleware does that
		inner.AnswerEarly()
	}
}

// isTimeout reports whether err is for the middleware that has set the deadline of outer, such as echo's ContextTimeout. It
// answers 503 to that error, where the HTTPErrorHandler would answer 500. outer.Err may still be nil then: the run's
// context, with the same deadline, has a timer of its own.
func isTimeout(err error, outer context.Context) bool {
	deadline, ok := outer.Deadline()
	return ok && !time.Now().Before(deadline) && errors.Is(err, context.DeadlineExceeded)
}

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

// HasAnswered reports whether the handler has answered, and the answer was not rolled back.
func (w *EchoWriter) HasAnswered() bool {
	w.forgetRolledBack()
	return *w.Response.Committed || w.hijacked
}

// isRolledBack reports whether the response was rolled back: the middleware's writer has no status any more.
func (w *EchoWriter) isRolledBack() bool {
	under, ok := w.ResponseWriter.(interface{ Status() int })
	return ok && w.answered && !w.hijacked && under.Status() == 0
}

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
