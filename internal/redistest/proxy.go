package redistest

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Proxy forwards between clients and a server, and causes the faults that a test asks for: at single commands by a
// [Rule], or on all connections by Delay, Cut and BlackHole. It forwards everything else unchanged.
//
// A Proxy expects one reply for each command, and understands subscriptions and pushes. It does not support CLIENT
// REPLY. Its methods are safe for concurrent use.
type Proxy struct {
	t        testing.TB
	target   string
	listener net.Listener
	running  sync.WaitGroup     // the accept loop and the links
	ctx      context.Context    // for dials to the target
	cancel   context.CancelFunc // when the proxy is closed

	mu     sync.Mutex
	links  map[*link]struct{}
	rules  []*Rule
	silent bool // between BlackHole and Heal
	delay  time.Duration
	names  []string
	rounds int
}

// NewProxy starts a proxy for the server at target, which may be down. The end of the test closes it.
//
// If the target refuses a connection, the proxy closes that of the client.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	p := &Proxy{t: t, target: target, listener: listener, links: map[*link]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr returns the host:port of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Client returns a client of the proxy, see [NewClient].
func (p *Proxy) Client(t testing.TB, opts ...func(*redis.Options)) *redis.Client {
	t.Helper()
	return NewClient(t, p.Addr(), opts...)
}

// Commands returns the names of the forwarded commands since the last Reset, in order, except those about the
// connection: HELLO, AUTH, SELECT, CLIENT, PING, READONLY, READWRITE, RESET and QUIT.
func (p *Proxy) Commands() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.names)
}

// RoundTrips returns the number of round trips of the commands that Commands lists. Commands that were sent together,
// or while a reply was outstanding, share a round trip.
func (p *Proxy) RoundTrips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rounds
}

// Reset clears Commands and RoundTrips. Rules stay.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names, p.rounds = nil, 0
}

// Delay makes every round trip take d longer, also those that set up a connection. A d of 0 ends the delay.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Cut closes all connections at once, and drops held commands and replies. A command in flight may or may not have
// reached the server. New connections work.
func (p *Proxy) Cut() {
	for _, l := range p.current() {
		l.close()
	}
}

// BlackHole makes the proxy discard every byte, and hide that a side has closed its end, from its return until Heal.
// Connections stay open, and new ones are accepted.
func (p *Proxy) BlackHole() {
	p.mu.Lock()
	p.silent = true
	p.mu.Unlock()
	for _, l := range p.current() {
		l.client.silence()
		l.server.silence()
	}
}

// Heal ends a BlackHole. It closes the connections that lost bytes in it, or by [Proxy.SwallowReply].
func (p *Proxy) Heal() {
	p.mu.Lock()
	p.silent = false
	p.mu.Unlock()
	for _, l := range p.current() {
		if l.client.isSilent() || l.server.isSilent() {
			l.close()
		}
	}
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			p.t.Errorf("redistest: the proxy of %s accepts no more: %v", p.target, err)
			return
		}
		p.running.Go(func() { p.serve(conn) })
	}
}

// serve forwards for one connection until both sides have ended.
func (p *Proxy) serve(conn net.Conn) {
	l := newLink(p, conn)
	defer l.close()
	if !p.add(l) {
		return
	}
	defer p.remove(l)
	if !l.server.isSilent() && !l.dial() {
		return
	}
	l.run()
}

// add adds l, silent during a BlackHole. It reports whether the proxy is open.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return false
	}
	p.links[l] = struct{}{}
	l.client.silent, l.server.silent = p.silent, p.silent
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

func (p *Proxy) current() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.links))
}

func (p *Proxy) close() {
	p.listener.Close()
	p.cancel()
	p.Cut()
	p.running.Wait()
}

// rulesFor returns the rules that match cmd: those on the command and those on its reply.
func (p *Proxy) rulesFor(cmd Command) (onRequest, onReply []*Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		switch {
		case !r.match(cmd):
		case r.onReply:
			onReply = append(onReply, r)
		default:
			onRequest = append(onRequest, r)
		}
	}
	return onRequest, onReply
}

func (p *Proxy) count(cmd Command, newRound bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names = append(p.names, cmd.Name)
	if newRound {
		p.rounds++
	}
}

func (p *Proxy) currentDelay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}
