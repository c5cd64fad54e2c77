// Package ask sends requests as they are written, also malformed ones, and keeps what came back. It counts them: a run
// never sends more than its budget.
package ask

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
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
}

// NewClient returns a client that waits for timeout for each response, sends at most parallel requests at a time and
// budget in all.
func NewClient(timeout time.Duration, parallel, budget int, insecure bool) *Client {
	c := &Client{Timeout: timeout, Parallel: parallel}
	c.tls = &tls.Config{InsecureSkipVerify: insecure}
	c.slots = make(chan struct{}, parallel)
	c.left.Store(int64(budget))
	return c
}

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
	return c.connected(ctx, r, func(conn net.Conn, e *Exchange) (err error) {
		raw := r.encode()
		last := len(raw) - 1
		_, failed := conn.Write(raw[:last])
		ready()
		if failed == nil {
			_, failed = conn.Write(raw[last:])
		}
		e.Sent = time.Now()
		e.Response, err = readResponse(conn, r.Method)
		e.Ended = time.Now()
		// A server may answer and close before it has read everything.
		if failed != nil && err != nil {
			return failed
		}
		return err
	})
}

// connected has the request sent on a connection, within the limits. If that fails, the exchange has no response.
func (c *Client) connected(ctx context.Context, r Request, talk func(net.Conn, *Exchange) error) Exchange {
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
	conn, err := c.dial(ctx, r)
	if err == nil {
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		err = talk(conn, &e)
	}
	if e.Err = err; err != nil && ctx.Err() != nil {
		e.Err = context.Cause(ctx)
		e.Request.Leaves = c.Timeout
	}
	return e
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

// Together sends the requests so that they arrive at the same instant: all but the last byte of each first, and then the
// last bytes. There must not be more than Parallel.
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
		raw := r.encode()
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
		raw, rest := r.encode(), (len(r.Body)+1)/2
		if _, err := conn.Write(raw[:len(raw)-rest]); err != nil {
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
