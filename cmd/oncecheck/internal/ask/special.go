package ask

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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

// Leave sends the request and closes the connection after stay, or at the first byte of an answer, which is ErrAnswered.
func (c *Client) Leave(ctx context.Context, r Request, stay time.Duration) Exchange {
	raw, _ := r.encode()
	return c.give(ctx, r, raw, func(conn net.Conn) error {
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
	raw, body := r.encode()
	return c.give(ctx, r, raw[:len(raw)-body+body/2], func(conn net.Conn) error {
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			_, _ = io.Copy(io.Discard, conn)
		}
		return errors.New("the request was cut in its body")
	})
}

// give sends the bytes, and closes the connection when then has returned why there is no response.
func (c *Client) give(ctx context.Context, r Request, raw []byte, then func(net.Conn) error) Exchange {
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
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, e.Err = conn.Write(raw); e.Err == nil {
		e.Sent = time.Now()
		e.Err = then(conn)
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
