package onceclient

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// try sends the request once through the base and judges the response. Its timeout covers that, but not the rest of the
// response's body.
func (c *call) try(req *http.Request) (*http.Response, error) {
	c.attempts++
	began := time.Now()
	limit := max(min(c.transport.tryTimeout, c.deadline.Sub(began)), 0)
	timedOut := fmt.Errorf("onceclient: no response within %v: %w", limit.Round(time.Millisecond), os.ErrDeadlineExceeded)
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(limit, func() { cancel(timedOut) })

	c.last = outcome{}
	resp, err := c.send(req.WithContext(ctx))
	if !timer.Stop() && err == nil { // the body would break off
		resp.Body.Close()
		err = timedOut
	}
	c.last.duration = time.Since(began)
	if err != nil {
		if context.Cause(ctx) == timedOut {
			err = timedOut
		}
		cancel(nil)
		c.last.status, c.last.problem, c.last.err = 0, "", err
		return nil, err
	}
	c.last.status = resp.StatusCode
	resp.Request = c.req
	resp.Body = cancelOnClose(resp.Body, cancel)
	return resp, nil
}

// send sends the request with its body, and sets whether and when the response calls for a repetition.
func (c *call) send(req *http.Request) (*http.Response, error) {
	req.Body, req.GetBody = c.payload.first, c.payload.again
	if c.attempts > 1 {
		body, err := c.payload.again()
		if err != nil {
			return nil, fmt.Errorf("onceclient: GetBody: %w", err)
		}
		req.Body = body
	}
	c.last.repeat = true // if there is no response
	resp, err := c.transport.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.Body == nil {
		resp.Body = http.NoBody // http.Client, too, allows a base to return a nil Body
	}
	c.last.repeat, c.last.problem, err = judge(resp)
	if err != nil {
		resp.Body.Close()
		c.last.repeat = true
		return nil, err
	}
	c.last.retryAfter = retryAfter(resp.Header, time.Now())
	return resp, nil
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
