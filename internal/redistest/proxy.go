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

// Proxy stands between clients and a server, reads along, and does harm where
// a test asks for it: at single commands by a [Rule], or to the path as a whole
// by Delay, Cut and BlackHole. It passes everything else on as it is.
//
// It takes one reply for one command, and knows subscriptions and pushes
// besides. CLIENT REPLY, which breaks that, is not for a proxied connection.
// Its methods may be called from any goroutine.
type Proxy struct {
	t        testing.TB
	target   string
	listener net.Listener
	running  sync.WaitGroup     // the accept loop and the links
	ctx      context.Context    // of the dials to the target
	cancel   context.CancelFunc // when the proxy is closed

	mu     sync.Mutex
	links  map[*link]struct{} // nil when the proxy is closed
	rules  []*Rule
	dark   bool // between BlackHole and Heal
	delay  time.Duration
	names  []string
	rounds int
}

// NewProxy starts a proxy on a free loopback port for the server at target,
// which need not be up. When the test ends, it closes every connection.
//
// A connection that the target refuses is accepted by the proxy and closed at
// once.
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

// Addr is the host:port that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Client returns a client that goes through the proxy, as [NewClient] does.
func (p *Proxy) Client(t testing.TB, opts ...func(*redis.Options)) *redis.Client {
	t.Helper()
	return NewClient(t, p.Addr(), opts...)
}

// Commands returns the names of the commands that went to the server since the
// proxy started or was last Reset, in their order. Left out are those that
// set up, check or end a connection: HELLO, AUTH, SELECT, CLIENT, PING,
// READONLY, READWRITE, RESET and QUIT.
func (p *Proxy) Commands() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.names)
}

// RoundTrips returns how often a client had to wait for the server over the
// commands that Commands lists: those that were sent together, or before the
// reply to one of them had come, share a round trip.
func (p *Proxy) RoundTrips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rounds
}

// Reset starts Commands and RoundTrips anew. Rules stay.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names, p.rounds = nil, 0
}

// Delay makes every round trip take d longer from now on, those that set up a
// connection included. A d of 0 ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Cut closes all connections at once, held commands and replies included. What
// is under way may have reached the server or not. New connections are served.
func (p *Proxy) Cut() {
	for _, l := range p.current() {
		l.close()
	}
}

// BlackHole swallows, from its return on, every byte in both directions, and
// that a side has closed its end. Nobody is told: connections stay open, new
// ones are accepted, and no answer comes.
func (p *Proxy) BlackHole() {
	p.mu.Lock()
	p.dark = true
	p.mu.Unlock()
	for _, l := range p.current() {
		l.client.darken()
		l.server.darken()
	}
}

// Heal ends a BlackHole for new connections. Those that it caught, or that
// [Proxy.SwallowReply] silenced, have lost bytes for good and are closed.
func (p *Proxy) Heal() {
	p.mu.Lock()
	p.dark = false
	p.mu.Unlock()
	for _, l := range p.current() {
		if l.client.isDark() || l.server.isDark() {
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

// serve returns when the connection is over on both sides.
func (p *Proxy) serve(conn net.Conn) {
	l := newLink(p, conn)
	defer l.close()
	if !p.add(l) {
		return
	}
	defer p.remove(l)
	if !l.server.isDark() && !l.dial() {
		return
	}
	l.run()
}

// add takes l up, in the dark if it is dark, and reports whether the proxy is
// open.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.links == nil {
		return false
	}
	p.links[l] = struct{}{}
	l.client.dark, l.server.dark = p.dark, p.dark
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
	links := p.current()
	p.mu.Lock()
	p.links = nil
	p.mu.Unlock()
	for _, l := range links {
		l.close()
	}
	p.running.Wait()
}

// judge returns the rules that cmd meets: on itself, and on its reply.
func (p *Proxy) judge(cmd Command) (onRequest, onReply []*Rule) {
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

func (p *Proxy) lag() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}
