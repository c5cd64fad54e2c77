package ask

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Together sends the requests so that they arrive at the same instant: all but the last byte of each first, and then the
// last bytes. Over HTTP/2 all are only started at once. There must not be more than Parallel.
func (c *Client) Together(ctx context.Context, requests []Request) []Exchange {
	exchanges := make([]Exchange, len(requests))
	var ready, done sync.WaitGroup
	ready.Add(len(requests))
	for i, r := range requests {
		done.Go(func() {
			once := sync.OnceFunc(func() {
				ready.Done()
				ready.Wait()
			})
			exchanges[i] = c.DoNotify(ctx, r, once)
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

// ErrAnswered means that the answer came before the client left.
var ErrAnswered = errors.New("the answer came before the client left")

// Leave sends the request and closes the connection after stay, without an answer.
func (c *Client) Leave(ctx context.Context, r Request, stay time.Duration) Exchange {
	e := Exchange{Request: r}
	release, err := c.acquire(ctx)
	if err != nil {
		e.Err = err
		return e
	}
	defer release()
	conn, err := c.dial(ctx, r)
	if err != nil {
		e.Err = err
		return e
	}
	defer conn.Close()
	raw, _ := r.encode()
	if _, err = conn.Write(raw); err != nil {
		e.Err = err
		return e
	}
	e.Sent = time.Now()
	e.Err = fmt.Errorf("the client left %v after its last byte", stay)
	if stay > 0 {
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		_ = conn.SetReadDeadline(e.Sent.Add(stay))
		if n, _ := conn.Read(make([]byte, 1)); n > 0 {
			e.Err = ErrAnswered
		}
	}
	return e
}

// overHTTP2 sends the request by net/http's transport.
func (c *Client) overHTTP2(ctx context.Context, e *Exchange) {
	var body io.Reader
	if len(e.Request.Body) > 0 {
		body = bytes.NewReader(e.Request.Body)
	}
	req, err := http.NewRequestWithContext(ctx, e.Request.Method, e.Request.URL.String(), body)
	if err != nil {
		e.Err = err
		return
	}
	req.GetBody = nil // so that the transport does not send it again on its own
	req.Header.Set("User-Agent", "oncecheck")
	for _, f := range e.Request.Header {
		req.Header.Add(f.Name, f.Value)
	}
	e.Sent = time.Now()
	resp, err := c.http2.RoundTrip(req)
	if err != nil {
		e.Err = err
		return
	}
	if resp.ProtoMajor != 2 {
		_ = resp.Body.Close()
		e.Err = fmt.Errorf("the server speaks %s, not HTTP/2", resp.Proto)
		return
	}
	e.Response, e.Err = readBody(resp, e.Request.Whole)
	e.Ended = time.Now()
}
