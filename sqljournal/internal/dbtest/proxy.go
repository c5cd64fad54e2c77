package dbtest

import (
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
	target   *Server
	listener net.Listener
	running  sync.WaitGroup // the accept loop and the links

	mu    sync.Mutex
	links []*link // also those that have ended
	rules []*Rule // that have not acted yet
	down  bool    // between Down and Up, and in the end
}

// NewProxy starts a proxy on a free loopback port for the target. When the test ends, it closes every
// connection.
func NewProxy(t testing.TB, target *Server) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &Proxy{target: target, listener: listener}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.Down()
		p.running.Wait()
	})
	return p
}

// Addr returns the host:port that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut closes all connections at once, and drops what is held on them. New connections work.
func (p *Proxy) Cut() {
	p.mu.Lock()
	links := slices.Clone(p.links)
	p.mu.Unlock()
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

// accept ends when the listener is closed.
func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
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
	l := &link{proxy: p, client: client, server: server, done: make(chan struct{}), unanswered: make(chan *Rule, 64)}
	defer l.close()
	p.mu.Lock()
	down := p.down
	p.links = append(p.links, l)
	p.mu.Unlock()
	if !down {
		l.run()
	}
}

// link is a client's connection to the proxy and the proxy's to the server. One goroutine reads each of them and writes
// to the other.
type link struct {
	proxy          *Proxy
	client, server net.Conn

	end  sync.Once
	done chan struct{} // closed when both connections are
	cut  atomic.Bool   // no further request is forwarded

	unanswered chan *Rule // of each request under way, the rule on its reply, or nil
}

// run forwards in both directions until both sides have ended.
func (l *link) run() {
	var w wire = &mysqlWire{client: l.client, server: l.server}
	if l.proxy.target.kind == KindPostgreSQL {
		p, err := newPostgreSQLWire(l.client, l.server)
		if err != nil {
			return
		}
		w = p
		l.unanswered <- nil // the server becomes ready for the first time
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

// apply applies a rule, if there is one, and reports whether the link is closed then: what was held must not be forwarded.
func (l *link) apply(r *Rule) (closed bool) {
	if r == nil {
		return false
	}
	r.act(r, l)
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// requests forwards requests to the server. When the client closes its end, the server sees that after the last
// request.
func (l *link) requests(w wire) {
	for {
		statement, hasReply, err := w.readRequest()
		if err != nil {
			if conn, ok := l.server.(*net.TCPConn); ok {
				_ = conn.CloseWrite() // the server may be gone already
			}
			return
		}
		if l.cut.Load() {
			return
		}
		onRequest, onReply := l.proxy.matching(statement)
		if l.apply(onRequest) {
			return
		}
		if hasReply {
			l.unanswered <- onReply
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
	for w.readReply() == nil {
		var rule *Rule
		select {
		case rule = <-l.unanswered:
		default: // a part of the login, or of a longer reply
		}
		if l.apply(rule) {
			return
		}
		_ = w.sendReply()
	}
	_ = w.sendReply() // what the server has said in the end
}
