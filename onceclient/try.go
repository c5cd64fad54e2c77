package onceclient

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"sync/atomic"
	"time"
)

// outcome is the result of a try: a response, or an error.
type outcome struct {
	Attempt
	resp   *http.Response
	repeat bool // whether the response, or the error, calls for a repetition
}

// try sends the request once through the base and judges the response. Its timeout covers that, and the part of the
// response's body that belongs to the try.
func (c *call) try() outcome {
	c.attempts++
	began := time.Now()
	limit := max(min(c.transport.tryTimeout, c.deadline.Sub(began)), 0)
	timedOut := fmt.Errorf("onceclient: no response within %v: %w", limit.Round(time.Millisecond), os.ErrDeadlineExceeded)
	ctx, cancel := context.WithCancelCause(c.req.Context())
	timer := time.AfterFunc(limit, func() { cancel(timedOut) })

	var got connections
	resp, problem, err := c.send(httptrace.WithClientTrace(ctx, got.trace()))
	if !timer.Stop() && err == nil { // the body would break off
		resp.Body.Close()
		err = timedOut
	}
	o := outcome{Attempt: Attempt{Number: c.attempts, Err: err, Duration: time.Since(began)}}
	if err != nil {
		if context.Cause(ctx) == timedOut {
			o.Err = timedOut
		}
		cancel(nil)
		o.repeat = !unsendable(o.Err)
		c.maybeSent = c.maybeSent || !got.none(o.repeat)
		return o
	}
	c.maybeSent = true
	resp.Request = c.req
	resp.Body = cancelOnClose(resp.Body, cancel)
	o.Status, o.Problem, o.resp, o.repeat = resp.StatusCode, problem, resp, repeats(resp, problem)
	return o
}

// connections is what a base such as http.Transport tells of the connections of a try. Its calls come before RoundTrip
// returns, unlike those that tell what was written.
type connections struct{ asked, got atomic.Bool }

func (c *connections) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { c.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { c.got.Store(true) },
	}
}

// none reports whether the try, which has failed, provably sent nothing. A base that tells nothing may have sent it, unless
// the error means that the request cannot be sent, so that isSendable is false.
func (c *connections) none(isSendable bool) bool {
	return !c.got.Load() && (c.asked.Load() || !isSendable)
}

// send sends the request with its body. It returns the response, and the type of its problem document if that was read.
func (c *call) send(ctx context.Context) (resp *http.Response, problem string, err error) {
	req := c.req.WithContext(ctx)
	req.Body = c.payload.first
	if c.attempts > 1 {
		if req.Body, err = c.payload.again(); err != nil {
			return nil, "", fmt.Errorf("%w: %w", errGetBody, err)
		}
	}
	if resp, err = c.transport.base.RoundTrip(req); err != nil {
		return nil, "", err
	}
	if resp.Body == nil {
		resp.Body = http.NoBody // http.Client, too, allows a base to return a nil Body
	}
	n := c.keeps(resp)
	if n == 0 {
		return resp, "", nil
	}
	kept, err := keep(resp, n)
	if err != nil {
		resp.Body.Close()
		return nil, "", err
	}
	return resp, problemType(resp.Header, kept[:min(len(kept), maxProblem)]), nil
}

// maxResponse is how many bytes of a response's body are read within the try: the default of the server's WithMaxResponse.
const maxResponse = 1 << 20

// keeps returns how many bytes of the body of resp belong to the try.
func (c *call) keeps(resp *http.Response) int64 {
	if c.payload.again == nil || resp.StatusCode < 400 && (resp.ContentLength > maxResponse || streams(resp)) {
		return 0
	}
	return maxResponse
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
