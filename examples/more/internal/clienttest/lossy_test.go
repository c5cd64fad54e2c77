package clienttest_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"testing"
)

// loss is what happens to a response.
type loss int

const (
	none        loss = iota
	whole            // the connection closes instead
	inTheHead        // it closes within the header
	inTheBody        // it closes within the body
	whileItRuns      // the client's connection closes when the request has been passed on, before there is a response
)

// lossyProxy forwards HTTP/1.1 requests to a server, and loses the responses that a test chooses.
type lossyProxy struct {
	t      *testing.T
	target string
	lose   func(n int) loss // of the nth response, from 1

	mu   sync.Mutex
	n    int
	lost int
}

// newLossyProxy starts a proxy. The end of the test stops it. It returns the proxy and its URL.
func newLossyProxy(t *testing.T, target string, lose func(n int) loss) (*lossyProxy, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &lossyProxy{t: t, target: target, lose: lose}
	var running sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			running.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		mu.Lock()
		for _, conn := range conns {
			conn.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return p, "http://" + listener.Addr().String()
}

func (p *lossyProxy) next() loss {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	l := p.lose(p.n)
	if l != none {
		p.lost++
	}
	return l
}

// serve forwards the requests of one connection until it closes or a response is lost.
func (p *lossyProxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		p.t.Error(err)
		return
	}
	defer server.Close()
	fromClient, fromServer := bufio.NewReader(client), bufio.NewReader(server)
	for {
		req, err := http.ReadRequest(fromClient)
		if err != nil {
			return
		}
		if req.Write(server) != nil {
			return
		}
		l := p.next()
		if l == whileItRuns {
			client.Close()
		}
		resp, err := http.ReadResponse(fromServer, req)
		if err != nil {
			return // the server has closed the connection: the handler panicked
		}
		raw, err := httputil.DumpResponse(resp, true)
		resp.Body.Close()
		if err != nil {
			return
		}
		switch l {
		case none:
			_, err = client.Write(raw)
		case inTheHead:
			_, _ = client.Write(raw[:20])
		case inTheBody:
			_, _ = client.Write(raw[:len(raw)-1])
		}
		if err != nil || l != none {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
	}
}
