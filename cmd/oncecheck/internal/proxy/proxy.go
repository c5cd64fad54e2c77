// Package proxy is a proxy that loses, cuts and doubles. It takes one HTTP/1.1 request a connection, hands it on byte
// for byte, and does what its fault says.
package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// Fault is what the proxy does to every request.
type Fault int

const (
	None        Fault = iota // hands everything on
	LoseAnswer               // takes the whole answer, and closes
	CutHead                  // hands on half of the answer's head, and closes
	CutBody                  // hands on the answer's head and half of its body, and closes
	CutRequest               // hands on the request's head and half of its body, and closes
	Twice                    // sends the request again after its answer, and hands on the second answer
	TwiceAtOnce              // sends the request on two connections, and hands on the first answer when both are there
)

// Proxy listens on a loopback port.
type Proxy struct {
	listener net.Listener
	dial     func(context.Context) (net.Conn, error)
	fault    Fault
	ctx      context.Context // done when the proxy is closed
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	answers [][]byte // guarded by mu
	failed  error    // guarded by mu
}

// Start starts a proxy whose connections to the server come from dial. Close it.
func Start(dial func(context.Context) (net.Conn, error), fault Fault) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, dial: dial, fault: fault}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the proxy's address.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Answers returns all responses of the server, byte for byte, also those that no client has seen. The error is ErrTooLarge if
// a message was too long for the proxy, which has then not done what its fault says.
func (p *Proxy) Answers() ([][]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.answers), p.failed
}

// note remembers an answer, or that a message was too long.
func (p *Proxy) note(answer message, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.answers = append(p.answers, answer.raw)
	case errors.Is(err, ErrTooLarge):
		p.failed = ErrTooLarge
	}
}

// Close ends the proxy and its connections, and waits for its goroutines.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.listener.Close()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() {
			defer conn.Close()
			defer p.closeWhenDone(conn)()
			p.serve(conn)
		})
	}
}

// closeWhenDone closes the connection when the proxy is closed. The caller calls stop when it no longer needs that.
func (p *Proxy) closeWhenDone(conn net.Conn) (stop func() bool) {
	return context.AfterFunc(p.ctx, func() { _ = conn.Close() })
}

// serve takes one request.
func (p *Proxy) serve(client net.Conn) {
	request, method, err := newReader(client).request(func() { _, _ = io.WriteString(client, "HTTP/1.1 100 Continue\r\n\r\n") })
	if err != nil {
		p.note(request, err)
		return
	}
	if p.fault == CutRequest {
		p.sendHalf(request)
		return
	}
	answer, err := p.fetch(request, method)
	if err != nil {
		return
	}
	switch p.fault {
	case LoseAnswer:
		return
	case CutHead:
		answer.raw = answer.raw[:answer.head/2]
	case CutBody:
		answer.raw = answer.raw[:answer.head+len(answer.body())/2]
	}
	_, _ = client.Write(answer.raw)
}

// sendHalf sends the request's head and half of its body, and ends the connection. It waits until the server has noticed,
// so that what is sent afterwards also comes afterwards.
func (p *Proxy) sendHalf(request message) {
	server, err := p.dial(p.ctx)
	if err != nil {
		return
	}
	defer server.Close()
	defer p.closeWhenDone(server)()
	_, _ = server.Write(request.raw[:request.head+len(request.body())/2])
	if half, ok := server.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		_ = server.SetReadDeadline(time.Now().Add(time.Second))
		_, _ = io.Copy(io.Discard, server)
	}
}

// fetch sends the request as often as the fault says, and returns the answer to hand on.
func (p *Proxy) fetch(request message, method string) (message, error) {
	switch p.fault {
	case Twice:
		if _, err := p.roundTrip(request, method, atOnce); err != nil {
			return message{}, err
		}
	case TwiceAtOnce:
		return p.hedge(request, method)
	}
	return p.roundTrip(request, method, atOnce)
}

// atOnce does not wait before the last byte.
func atOnce() {}

// hedge sends the request on two connections, the last bytes at one instant, and waits for both answers. It returns the one that came first.
func (p *Proxy) hedge(request message, method string) (message, error) {
	type result struct {
		answer message
		err    error
	}
	results := make(chan result, 2)
	var ready sync.WaitGroup
	ready.Add(2)
	for range 2 {
		p.running.Go(func() {
			once := sync.OnceFunc(ready.Done)
			defer once()
			answer, err := p.roundTrip(request, method, func() {
				once()
				ready.Wait()
			})
			results <- result{answer, err}
		})
	}
	first, second := <-results, <-results
	if first.err != nil {
		first = second
	}
	return first.answer, first.err
}

// roundTrip sends the request on a connection of its own and reads the whole answer. It calls wait before the last byte.
func (p *Proxy) roundTrip(request message, method string, wait func()) (message, error) {
	server, err := p.dial(p.ctx)
	if err != nil {
		return message{}, err
	}
	defer server.Close()
	defer p.closeWhenDone(server)()
	last := len(request.raw) - 1
	_, err = server.Write(request.raw[:last])
	wait()
	if err == nil {
		_, err = server.Write(request.raw[last:])
	}
	if err != nil {
		return message{}, err
	}
	answer, err := newReader(server).response(method)
	p.note(answer, err)
	return answer, err
}
