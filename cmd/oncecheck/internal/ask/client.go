// Package ask sends requests as they are written, also malformed ones, and keeps what came back. It counts them: a run
// never sends more than its budget.
package ask

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// ErrBudget means that the run has sent as many requests as it may.
var ErrBudget = errors.New("the budget of requests is spent")

// Limits of one response. Fifty may be read at once, and a thousand are compared in the end, so that of a long body only the
// beginning is kept, with the length and the sum of the whole.
const (
	maxHead = 1 << 20   // the head, with all interim responses before it
	maxBody = 64 << 20  // what is read of the body
	maxKept = 128 << 10 // what is kept of it
)

// Client sends requests, each on a connection of its own. It may be used concurrently.
type Client struct {
	timeout time.Duration
	tls     *tls.Config
	slots   chan struct{} // one for each request under way
	left    atomic.Int64  // of the budget
	http2   *http.Transport
}

// NewClient returns a client that waits for timeout for each response, sends at most parallel requests at a time and
// budget in all.
func NewClient(timeout time.Duration, parallel, budget int, insecure bool) *Client {
	c := &Client{timeout: timeout, tls: &tls.Config{InsecureSkipVerify: insecure}, slots: make(chan struct{}, parallel)}
	c.left.Store(int64(budget))
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	c.http2 = &http.Transport{Protocols: protocols, TLSClientConfig: c.tls.Clone(), DisableCompression: true, MaxResponseHeaderBytes: maxHead}
	return c
}

// Close closes idle connections.
func (c *Client) Close() { c.http2.CloseIdleConnections() }

// Left returns how many requests may still be sent.
func (c *Client) Left() int { return int(max(0, c.left.Load())) }

// Parallel returns how many requests may be under way.
func (c *Client) Parallel() int { return cap(c.slots) }

// Timeout returns how long a response may take.
func (c *Client) Timeout() time.Duration { return c.timeout }

// Do sends the request and reads the response.
func (c *Client) Do(ctx context.Context, r Request) Exchange {
	return c.DoNotify(ctx, r, func() {})
}

// DoNotify is Do. It calls ready right before the last byte is sent, or when that will not be.
func (c *Client) DoNotify(ctx context.Context, r Request, ready func()) Exchange {
	e := Exchange{Request: r}
	release, err := c.acquire(ctx)
	if err != nil {
		ready()
		e.Err = err
		return e
	}
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within %v", c.timeout))
	defer cancel()
	if r.HTTP2 {
		ready()
		c.overHTTP2(ctx, &e)
	} else {
		c.overHTTP1(ctx, &e, ready)
	}
	if e.Err != nil && ctx.Err() != nil {
		e.Err = context.Cause(ctx)
		e.Request.Leaves = c.timeout
	}
	return e
}

// acquire waits for a slot and takes one request from the budget.
func (c *Client) acquire(ctx context.Context) (release func(), err error) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if c.left.Add(-1) < 0 {
		<-c.slots
		return nil, ErrBudget
	}
	return func() { <-c.slots }, nil
}

// overHTTP1 writes the request, calls ready before its last byte, and reads the response.
func (c *Client) overHTTP1(ctx context.Context, e *Exchange, ready func()) {
	conn, err := c.dial(ctx, e.Request)
	if err != nil {
		ready()
		e.Err = err
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	in := newReader(conn)
	early, err := writeRequest(conn, in, e.Request, ready)
	e.Sent = time.Now()
	if early == nil && err != nil {
		// A server may answer and close before it has read everything.
		if e.Response, _ = in.response(e.Request, nil); e.Response == nil {
			e.Err = err
		}
	} else {
		e.Response, e.Err = in.response(e.Request, early)
	}
	e.Ended = time.Now()
}

// writeRequest writes the request. With Expect, the body waits for a 100, for a second at most; a final response
// that comes instead of the 100 is returned as early.
func writeRequest(conn net.Conn, in *reader, r Request, ready func()) (early *http.Response, err error) {
	raw, body := r.encode()
	if r.Expect && body > 0 {
		if _, err = conn.Write(raw[:len(raw)-body]); err != nil {
			ready()
			return nil, err
		}
		raw = raw[len(raw)-body:]
		if early = awaitContinue(conn, in, r.Method); early != nil {
			ready()
			return early, nil
		}
	}
	last := len(raw) - 1
	_, err = conn.Write(raw[:last])
	ready()
	if err == nil {
		_, err = conn.Write(raw[last:])
	}
	return nil, err
}

// awaitContinue waits for 100 Continue, for a second at most. It returns a final response, if that comes instead.
func awaitContinue(conn net.Conn, in *reader, method string) *http.Response {
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	if _, err := in.buffered.Peek(1); err != nil {
		return nil
	}
	_ = conn.SetReadDeadline(time.Time{})
	resp, err := in.head(method)
	if err != nil || resp.StatusCode < 200 {
		return nil
	}
	return resp
}

// dial connects to the URL's host, with TLS if the URL says so.
func (c *Client) dial(ctx context.Context, r Request) (net.Conn, error) {
	port := map[string]string{"http": "80", "https": "443"}[r.URL.Scheme]
	addr := net.JoinHostPort(r.URL.Hostname(), cmp.Or(r.URL.Port(), port))
	if r.URL.Scheme == "https" {
		return (&tls.Dialer{Config: c.tls}).DialContext(ctx, "tcp", addr)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}
