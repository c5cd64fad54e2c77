package onceclient

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// outcome is the result of a try: a response, or an error.
type outcome struct {
	resp     *http.Response
	problem  string // the type of the response's problem document, if it was read
	err      error
	repeat   bool // whether the response, or the error, calls for a repetition
	duration time.Duration
}

// status returns the status of the response, and 0 without one.
func (o outcome) status() int {
	if o.resp == nil {
		return 0
	}
	return o.resp.StatusCode
}

// try sends the request once through the base and judges the response. Its timeout covers that, but not the rest of the
// response's body.
func (c *call) try() outcome {
	c.attempts++
	began := time.Now()
	limit := max(min(c.transport.tryTimeout, c.deadline.Sub(began)), 0)
	timedOut := fmt.Errorf("onceclient: no response within %v: %w", limit.Round(time.Millisecond), os.ErrDeadlineExceeded)
	ctx, cancel := context.WithCancelCause(c.req.Context())
	timer := time.AfterFunc(limit, func() { cancel(timedOut) })

	o := c.send(ctx)
	if !timer.Stop() && o.err == nil { // the body would break off
		o = failed(o.resp, timedOut)
	}
	o.duration = time.Since(began)
	if o.err != nil {
		if context.Cause(ctx) == timedOut {
			o.err = timedOut
		}
		o.repeat = o.repeat && !unsendable(o.err)
		cancel(nil)
		return o
	}
	o.resp.Request = c.req
	o.resp.Body = cancelOnClose(o.resp.Body, cancel)
	return o
}

// send sends the request with its body.
func (c *call) send(ctx context.Context) outcome {
	req := c.req.WithContext(ctx)
	req.Body = c.payload.first
	if c.attempts > 1 {
		body, err := c.payload.again()
		if err != nil {
			return outcome{err: fmt.Errorf("onceclient: GetBody: %w", err)}
		}
		req.Body = body
	}
	resp, err := c.transport.base.RoundTrip(req)
	if err != nil {
		return outcome{err: err, repeat: true}
	}
	if resp.Body == nil {
		resp.Body = http.NoBody // http.Client, too, allows a base to return a nil Body
	}
	repeat, problem, err := judge(resp)
	if err != nil {
		return failed(resp, err)
	}
	return outcome{resp: resp, repeat: repeat, problem: problem}
}

// failed is the outcome of a try whose response breaks off.
func failed(resp *http.Response, err error) outcome {
	resp.Body.Close()
	return outcome{err: err, repeat: true}
}

// cancelOnClose returns body so that its Close, or its end, also calls cancel. It stays an io.Writer if it is one, as
// the body of 101 Switching Protocols is.
func cancelOnClose(body io.ReadCloser, cancel context.CancelCauseFunc) io.ReadCloser {
	b := &responseBody{body, cancel}
	if w, ok := body.(io.Writer); ok {
		return struct {
			*responseBody
			io.Writer
		}{b, w}
	}
	return b
}

type responseBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.cancel(nil)
	}
	return n, err
}

func (b *responseBody) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
