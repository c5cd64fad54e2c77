package dbtest

import (
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy forwards between clients and a server, and causes the faults that a test asks for: at single
// requests by a [Rule], or on all connections by Cut and Down. It supports neither TLS nor COPY. Its methods may be
// called concurrently.
type Proxy struct {
	t        testing.TB
	target   *Server
	listener net.Listener
	running  sync.WaitGroup // the accept loop and the links

	mu    sync.Mutex
	links map[*link]struct{} // nil when the proxy is closed
	rules []*Rule            // that have not acted yet
	down  bool               // between Down and Up
}

// NewProxy starts a proxy on a free loopback port for the target. When the test ends, it closes every
// connection.
func NewProxy(t testing.TB, target *Server) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	p := &Proxy{t: t, target: target, listener: listener, links: map[*link]struct{}{}}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr returns the host:port that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut closes all connections at once, and drops what is held on them. New connections work.
func (p *Proxy) Cut() {
	links := p.current()
	for _, l := range links { // first: a client whose connection is closed may send at once on one that is not yet
		l.cut.Store(true)
	}
	for _, l := range links {
		l.close()
	}
}

// Down closes all connections, and until Up also new ones at once, as if the server were down.
func (p *Proxy) Down() {
	p.mu.Lock()
	p.down = true
	p.mu.Unlock()
	p.Cut()
}

// Up ends Down.
func (p *Proxy) Up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

func (p *Proxy) current() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.links))
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			p.t.Errorf("dbtest: the proxy accepts no more: %v", err)
			return
		}
		p.running.Go(func() { p.serve(conn) })
	}
}

// serve forwards for one connection until both sides have ended. If the server refuses a connection, it closes the
// client's.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target.Addr())
	if err != nil {
		return
	}
	l := &link{proxy: p, client: client, server: server, done: make(chan struct{})}
	defer l.close()
	p.mu.Lock()
	open := p.links != nil && !p.down
	if open {
		p.links[l] = struct{}{}
	}
	p.mu.Unlock()
	if open {
		l.run()
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	}
}

func (p *Proxy) close() {
	p.listener.Close()
	links := p.current()
	p.mu.Lock()
	p.links = nil
	p.mu.Unlock()
	for _, l := range links {
		l.close()
	}
	p.running.Wait()
}

// link is a client's connection to the proxy and the proxy's to the server. One goroutine reads each of them and writes
// to the other.
type link struct {
	proxy          *Proxy
	client, server net.Conn

	end  sync.Once
	done chan struct{} // closed when both connections are
	cut  atomic.Bool   // no further request is forwarded

	mu         sync.Mutex
	unanswered [][]*Rule // of each request under way, the rules on its reply
}

// run forwards in both directions until both sides have ended.
func (l *link) run() {
	var w wire = newMySQLWire(l.client, l.server)
	if l.proxy.target.kind == KindPostgreSQL {
		p, err := newPostgreSQLWire(l.client, l.server)
		if err != nil {
			return
		}
		w = p
		l.unanswered = [][]*Rule{nil} // the server becomes ready for the first time
	}
	var replies sync.WaitGroup
	replies.Go(func() { l.replies(w) })
	l.requests(w)
	replies.Wait()
}

// close closes both connections at once.
func (l *link) close() {
	l.end.Do(func() {
		close(l.done)
		l.client.Close()
		l.server.Close()
	})
}

func (l *link) isClosed() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// await waits until c or the link is closed.
func (l *link) await(c <-chan struct{}) {
	select {
	case <-c:
	case <-l.done:
	}
}

// requests forwards requests to the server. When the client closes its end, the server sees that after the last
// request.
func (l *link) requests(w wire) {
	for {
		q, err := w.readRequest()
		if err != nil {
			if conn, ok := l.server.(*net.TCPConn); ok {
				_ = conn.CloseWrite() // the server may be gone already
			}
			return
		}
		if l.cut.Load() {
			return
		}
		onRequest, onReply := l.proxy.matching(q.statements)
		for _, r := range onRequest {
			r.act(l)
		}
		if len(onRequest) > 0 && l.isClosed() { // otherwise what was held might reach the server
			return
		}
		if q.hasReply {
			l.mu.Lock()
			l.unanswered = append(l.unanswered, onReply)
			l.mu.Unlock()
		}
		if w.sendRequest() != nil {
			l.close()
			return
		}
	}
}

// replies forwards replies to the client until the server closes its end. It goes on without the client, so that the
// server executes all that it was sent.
func (l *link) replies(w wire) {
	defer l.close()
	for {
		ready, err := w.readReply()
		if err != nil {
			return
		}
		rules := l.onReply(ready)
		if !ready && len(rules) > 0 {
			continue
		}
		for _, r := range rules {
			r.act(l)
		}
		if len(rules) > 0 && l.isClosed() { // otherwise what was held might reach the client
			return
		}
		_ = w.sendReply()
	}
}

// onReply returns the rules on the reply that the server is sending. With ready, they act now.
func (l *link) onReply(ready bool) []*Rule {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.unanswered) == 0 {
		return nil
	}
	rules := l.unanswered[0]
	if ready {
		l.unanswered = l.unanswered[1:]
	}
	return rules
}
