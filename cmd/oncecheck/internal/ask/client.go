// Package ask sends requests as they are written, also malformed ones, and keeps what came back. It counts them: a run
// never sends more than its budget.
package ask

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ErrBudget means that the run has sent as many requests as it may.
var ErrBudget = errors.New("the budget of requests is spent")

// ErrAnswered means that the answer came before the client left.
var ErrAnswered = errors.New("the answer came before the client left")

// Client sends requests, each on a connection of its own. It may be used concurrently.
type Client struct {
	Timeout  time.Duration // for each response
	Parallel int           // how many requests may be under way

	tls   *tls.Config
	slots chan struct{} // one for each request under way
	left  atomic.Int64  // of the budget
	http2 *http.Transport
}

// NewClient returns a client that waits for timeout for each response, sends at most parallel requests at a time and
// budget in all.
func NewClient(timeout time.Duration, parallel, budget int, insecure bool) *Client {
	c := &Client{Timeout: timeout, Parallel: parallel}
	c.tls = &tls.Config{InsecureSkipVerify: insecure}
	c.slots = make(chan struct{}, parallel)
	c.left.Store(int64(budget))
	c.http2 = &http.Transport{
		Protocols: new(http.Protocols), TLSClientConfig: c.tls.Clone(),
		DisableCompression: true, MaxResponseHeaderBytes: maxHead,
	}
	c.http2.Protocols.SetHTTP2(true)
	c.http2.Protocols.SetUnencryptedHTTP2(true)
	return c
}

// Close closes idle connections.
func (c *Client) Close() { c.http2.CloseIdleConnections() }

// Left returns how many requests may still be sent.
func (c *Client) Left() int { return int(max(0, c.left.Load())) }

// Do sends the request and reads the response.
func (c *Client) Do(ctx context.Context, r Request) Exchange {
	return c.DoNotify(ctx, r, func() {})
}

// DoNotify is Do. It calls ready right before the last byte is sent, or when that will not be.
func (c *Client) DoNotify(ctx context.Context, r Request, ready func()) Exchange {
	ready = sync.OnceFunc(ready)
	defer ready()
	if r.HTTP2 {
		return c.limited(ctx, r, func(ctx context.Context, e *Exchange) error {
			ready()
			return c.overHTTP2(ctx, e)
		})
	}
	return c.connected(ctx, r, func(conn net.Conn, e *Exchange) (err error) {
		in := newReader(conn)
		early, failed := writeRequest(conn, in, r, ready)
		e.Sent = time.Now()
		e.Response, err = in.response(r, early)
		e.Ended = time.Now()
		// A server may answer and close before it has read everything.
		if failed != nil && err != nil {
			return failed
		}
		return err
	})
}

// limited has the request sent within the limits. If that fails, the exchange has no response.
func (c *Client) limited(ctx context.Context, r Request, send func(context.Context, *Exchange) error) Exchange {
	e := Exchange{Request: r}
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		e.Err = context.Cause(ctx)
		return e
	}
	defer func() { <-c.slots }()
	if c.left.Add(-1) < 0 {
		e.Err = ErrBudget
		return e
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("no answer within %v", c.Timeout))
	defer cancel()
	e.Err = send(ctx, &e)
	if e.Err != nil && ctx.Err() != nil {
		e.Err = context.Cause(ctx)
		e.Request.Leaves = c.Timeout
	}
	return e
}

// connected is limited, with a connection.
func (c *Client) connected(ctx context.Context, r Request, talk func(net.Conn, *Exchange) error) Exchange {
	return c.limited(ctx, r, func(ctx context.Context, e *Exchange) error {
		conn, err := c.dial(ctx, r)
		if err != nil {
			return err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		return talk(conn, e)
	})
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

// writeRequest writes the request. With Expect, the body waits for a 100, for a second at most; a final response
// that comes instead of the 100 is returned as early.
func writeRequest(conn net.Conn, in *reader, r Request, ready func()) (early *http.Response, err error) {
	raw, body := r.encode()
	if r.Expect && body > 0 {
		if _, err = conn.Write(raw[:len(raw)-body]); err != nil {
			return nil, err
		}
		raw = raw[len(raw)-body:]
		if early = awaitContinue(conn, in, r.Method); early != nil {
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
	_, err := in.buffered.Peek(1)
	_ = conn.SetReadDeadline(time.Time{})
	if err != nil {
		return nil
	}
	resp, err := in.head(method)
	if err != nil || resp.StatusCode < 200 {
		return nil
	}
	return resp
}

// overHTTP2 sends the request by net/http's transport.
func (c *Client) overHTTP2(ctx context.Context, e *Exchange) error {
	r, body := e.Request, io.Reader(http.NoBody)
	if len(r.Body) > 0 {
		body = bytes.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL.String(), body)
	if err != nil {
		return err
	}
	// So that the transport does not send it again on its own.
	req.GetBody = nil
	req.Header.Set("User-Agent", "oncecheck")
	for _, f := range r.Header {
		req.Header.Add(f.Name, f.Value)
	}
	e.Sent = time.Now()
	resp, err := c.http2.RoundTrip(req)
	if err != nil {
		return err
	}
	if resp.ProtoMajor != 2 {
		_ = resp.Body.Close()
		return fmt.Errorf("the server speaks %s, not HTTP/2", resp.Proto)
	}
	e.Response, err = readBody(resp, r.Whole)
	e.Ended = time.Now()
	return err
}

// Together sends the requests so that they arrive at the same instant: all but the last byte of each first, and then the
// last bytes. Over HTTP/2 all are only started at once. There must not be more than Parallel.
func (c *Client) Together(ctx context.Context, requests []Request) []Exchange {
	exchanges := make([]Exchange, len(requests))
	var ready, done sync.WaitGroup
	ready.Add(len(requests))
	for i, r := range requests {
		done.Go(func() {
			exchanges[i] = c.DoNotify(ctx, r, func() {
				ready.Done()
				ready.Wait()
			})
		})
	}
	done.Wait()
	return exchanges
}

// Overlapped returns how many of the requests had been sent before the first of them was answered.
func Overlapped(exchanges []Exchange) (n int) {
	var first time.Time
	for _, e := range exchanges {
		if e.Response != nil && (first.IsZero() || e.Ended.Before(first)) {
			first = e.Ended
		}
	}
	for _, e := range exchanges {
		if !e.Sent.IsZero() && e.Sent.Before(first) {
			n++
		}
	}
	return n
}

// Leave sends the request and closes the connection after stay, or at the first byte of an answer, which is ErrAnswered.
func (c *Client) Leave(ctx context.Context, r Request, stay time.Duration) Exchange {
	return c.connected(ctx, r, func(conn net.Conn, e *Exchange) error {
		raw, _ := r.encode()
		if _, err := conn.Write(raw); err != nil {
			return err
		}
		e.Sent = time.Now()
		if stay > 0 {
			_ = conn.SetReadDeadline(time.Now().Add(stay))
			if n, _ := conn.Read(make([]byte, 1)); n > 0 {
				return ErrAnswered
			}
		}
		return fmt.Errorf("the client left %v after its last byte", stay)
	})
}

// Cut sends the request's head and half of its body, and ends the connection. It waits until the server has noticed, so
// that what is sent afterwards also comes afterwards.
func (c *Client) Cut(ctx context.Context, r Request) Exchange {
	return c.connected(ctx, r, func(conn net.Conn, e *Exchange) error {
		raw, body := r.encode()
		if _, err := conn.Write(raw[:len(raw)-body+body/2]); err != nil {
			return err
		}
		e.Sent = time.Now()
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			_, _ = io.Copy(io.Discard, conn)
		}
		return errors.New("the request was cut in its body")
	})
}
