package middleware_test

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// protocols are those that listen knows, but for "pipe", which is HTTP/1.1 in memory.
var protocols = []string{"http/1.1", "h2", "h2c"}

// overAll runs test once for each protocol.
func overAll(t *testing.T, test func(t *testing.T, protocol string)) {
	t.Helper()
	t.Parallel()
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			test(t, protocol)
		})
	}
}

// listen serves h until the test ends, and returns where, and how to get there.
func listen(t testing.TB, protocol string, h http.Handler) (url string, transport *http.Transport) {
	t.Helper()
	transport = &http.Transport{DisableCompression: true}
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	switch protocol {
	case "http/1.1":
		server.Start()
	case "pipe":
		server.Listener.Close()
		pipe := newPipe()
		server.Listener, transport.DialContext = pipe, pipe.dial
		server.Start()
	case "h2":
		server.EnableHTTP2 = true
		server.StartTLS()
		roots := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
		transport.ForceAttemptHTTP2 = true
	case "h2c":
		server.Config.Protocols, transport.Protocols = new(http.Protocols), new(http.Protocols)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		transport.Protocols.SetUnencryptedHTTP2(true)
		server.Start()
	}
	return server.URL, transport
}

// pipe is a listener in memory, which uses up no ports.
type pipe struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipe() *pipe { return &pipe{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipe) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

func (p *pipe) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
