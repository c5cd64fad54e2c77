package middleware

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/middleware/internal/capture"
)

// Why the outcome of a run is not Executed.
var (
	errBroken   = errors.New("middleware: the response is shorter or longer than its Content-Length")
	errExpired  = errors.New("middleware: the handler returned without a response after its context was done")
	errBypassed = errors.New("middleware: the handler answered on a ResponseWriter other than the one that it was given, " +
		"so its response cannot be stored")
)

// protect runs the handler, concludes the run, and sends the response. The numbers are the steps in docs/reference.md.
func (x *exchange) protect(next http.Handler) {
	m, r, w := x.m, &x.in.run, &x.product.writer
	r.ContextKey, r.ContextValue = executionKey{}, &x.exec
	x.exec = Execution{key: r.StorageKey, fence: r.Fence(), outer: x.in.outer, control: r.Control()}
	x.product.options, x.product.control = &m.options, r.Control()
	w.Begin(x.w, x.r, r.Control(), m.maxResponse)
	var expired error
	result := r.Do( // 5 to 7: the handler runs, its response is buffered, the run is concluded
		func() { expired = x.handle(next) },
		func() run.Ending { return x.ending(expired) },
		func(interrupted run.Result) { x.emit(x.product.eventOf(&interrupted, w.SentStatus())) })
	if result.Kind != run.Own {
		w.Withdraw()
		x.answer(&result)
		return
	}
	// 8. The response is sent, and the observer is called even if the underlying writer panics.
	defer x.emit(x.product.eventOf(&result, w.Status()))
	w.Deliver(x.r.Context())
}

// handle calls the handler, and cuts off what it leaves behind. It returns why its context was done when it returned, and
// otherwise nil.
func (x *exchange) handle(next http.Handler) (expired error) {
	request := x.request(x.in.run.Start(&x.product))
	defer func() {
		expired = x.in.run.CutOff()
		x.body.CutOff()
		x.pattern = request.Pattern
		x.removeTemporaryFiles(request)
		x.in.body = nil // it is not needed while the response is stored
	}()
	next.ServeHTTP(&x.product.writer, request)
	return nil
}

// ending returns how the handler has ended.
func (x *exchange) ending(expired error) run.Ending {
	verdict, status := x.product.writer.Finish(expired != nil), x.product.writer.Status()
	switch {
	case x.m.forbids(verdict, status):
		return x.exec.forbidden()
	case verdict == capture.Whole:
		return x.m.wholeEnding(&x.exec, status, x.product.writer.HeaderAtStatus, expired)
	case verdict == capture.TimedOut:
		return run.Ending{How: run.TimedOut, Err: fmt.Errorf("%w: %w", errExpired, expired)}
	}
	return endingOf(verdict, x.w)
}

// endingOf returns the ending of a run whose response cannot be stored. under is the underlying writer.
func endingOf(verdict capture.Verdict, under http.ResponseWriter) run.Ending {
	switch verdict {
	case capture.Broken:
		return run.Ending{How: run.Broken, Err: errBroken}
	case capture.Bypassed:
		return run.Ending{How: run.Bypassed, Err: errBypassed}
	case capture.LeftOpen:
		return run.Ending{How: run.LeftOpen, Err: capture.WhyLeftOpen(under)}
	}
	return run.Ending{How: run.Partial}
}

// request returns the handler's request: the original one, with ctx and the body that was read.
func (x *exchange) request(ctx context.Context) *http.Request {
	r := x.r.WithContext(ctx)
	r.Body = http.NoBody
	if body := x.in.body; len(body) > 0 {
		x.body.Begin(body, io.EOF, http.NoBody)
		r.Body = &x.body
	}
	return r
}

// removeTemporaryFiles removes the files of the handler's multipart form. net/http does that only for its own request.
func (x *exchange) removeTemporaryFiles(r *http.Request) {
	if r.MultipartForm != nil && x.r.MultipartForm == nil {
		_ = r.MultipartForm.RemoveAll() // net/http ignores the error too
	}
}
