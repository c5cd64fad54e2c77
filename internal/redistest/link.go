package redistest

import (
	"errors"
	"net"
	"strings"
	"sync"
	"time"
)

// link is a client's connection to the proxy and the proxy's to the server.
// One goroutine reads each of them and writes to the other.
type link struct {
	proxy          *Proxy
	client, server *side

	end  sync.Once
	done chan struct{} // closed when both connections are

	inRound bool // a command of this round was counted; the requests goroutine's own

	mu         sync.Mutex
	unanswered []*exchange // forwarded, in this order
	subscribed bool
}

// exchange is a command whose reply has not come.
type exchange struct {
	cmd   Command
	rules []*Rule // to act on the reply
	owed  int     // confirmations still to come, of a subscription command
}

// side is one end of a link. Writing and darkening exclude each other, so that
// nothing gets through once darken has returned.
type side struct {
	mu   sync.Mutex
	conn net.Conn // of the server: nil until it is dialled
	dark bool     // what is written here is swallowed; stays so
}

func newLink(p *Proxy, client net.Conn) *link {
	return &link{
		proxy:  p,
		client: &side{conn: client},
		server: &side{},
		done:   make(chan struct{}),
	}
}

// dial connects to the target, and reports whether the link is up.
func (l *link) dial() bool {
	var d net.Dialer
	conn, err := d.DialContext(l.proxy.ctx, "tcp", l.proxy.target)
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed() {
		conn.Close()
		return false
	}
	l.server.conn = conn
	return true
}

// run returns when neither side has anything left to say.
func (l *link) run() {
	var replies sync.WaitGroup
	if l.server.conn != nil {
		replies.Go(l.replies)
	}
	l.requests()
	replies.Wait()
}

// close ends both connections at once, whatever is under way.
func (l *link) close() {
	l.end.Do(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		close(l.done)
		l.client.conn.Close()
		if l.server.conn != nil {
			l.server.conn.Close()
		}
	})
}

func (l *link) closed() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// requests carries commands to the server. When the client hangs up, the server
// learns it in order, behind the last command, and finishes its replies.
func (l *link) requests() {
	defer l.server.closeWrite()
	in := newSplitter(l.client.conn)
	for {
		together := in.buffered() // with the command before
		cmd, err := in.command()
		if err != nil {
			l.explain("client", err)
			return
		}
		if !together {
			l.wait(l.proxy.lag())
		}
		onRequest, onReply := l.proxy.judge(cmd)
		for _, r := range onRequest {
			r.act(l, cmd)
		}
		if l.closed() {
			return
		}
		l.forward(cmd, onReply, together)
	}
}

// replies carries replies to the client, until the server hangs up.
func (l *link) replies() {
	defer func() {
		if !l.client.isDark() {
			l.close()
		}
	}()
	in := newSplitter(l.server.conn)
	for {
		r, err := in.reply()
		if err != nil {
			l.explain("server", err)
			return
		}
		if x := l.answered(r); x != nil {
			for _, rule := range x.rules {
				rule.act(l, x.cmd)
			}
		}
		if l.closed() {
			return
		}
		l.client.write(r.raw)
	}
}

// forward sends cmd to the server, and notes that a reply is due.
func (l *link) forward(cmd Command, onReply []*Rule, together bool) {
	s := l.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dark {
		return
	}
	alone := l.expect(&exchange{cmd: cmd, rules: onReply, owed: cmd.confirmations()})
	if alone && !together {
		l.inRound = false
	}
	if !cmd.setsUp() {
		l.proxy.count(cmd, !l.inRound)
		l.inRound = true
	}
	if _, err := s.conn.Write(cmd.raw); err != nil {
		l.close()
	}
}

// expect reports whether x is the only exchange under way.
func (l *link) expect(x *exchange) (alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unanswered = append(l.unanswered, x)
	l.subscribed = l.subscribed || x.owed > 0
	return len(l.unanswered) == 1
}

// answered returns the exchange that r belongs to, or nil if r came unasked.
func (l *link) answered(r reply) *exchange {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.unanswered) == 0 {
		return nil
	}
	x := l.unanswered[0]
	if r.pushed(l.subscribed) {
		if x.owed == 0 || !strings.EqualFold(r.word, x.cmd.Name) {
			return nil
		}
		x.owed--
		if x.owed > 0 {
			return x
		}
	}
	l.unanswered = l.unanswered[1:]
	return x
}

func (l *link) wait(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.done:
	}
}

// explain closes the link when what it read is not RESP, and tells the test:
// it may be the test's own intent.
func (l *link) explain(who string, err error) {
	if errors.Is(err, errProtocol) {
		l.proxy.t.Logf("redistest: the proxy of %s closes a connection: from the %s: %v", l.proxy.target, who, err)
		l.close()
	}
}

// write passes b on, or swallows it. An error is not its business: the
// goroutine that reads this side meets it too.
func (s *side) write(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dark {
		_, _ = s.conn.Write(b)
	}
}

func (s *side) closeWrite() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if conn, ok := s.conn.(*net.TCPConn); ok && !s.dark {
		_ = conn.CloseWrite()
	}
}

func (s *side) darken() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dark = true
}

func (s *side) isDark() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dark
}
