package redistest

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"
)

// link is the connection of one client to the proxy, and the one of the proxy to the server. For each connection, one
// goroutine reads from it and writes to the other.
type link struct {
	proxy          *Proxy
	client, server *side

	ctx    context.Context // done when both connections are closed
	cancel context.CancelFunc

	inRound bool // a command of the current round trip was counted; used only by the goroutine of requests

	mu         sync.Mutex
	unanswered []*exchange // commands without a reply, in the order in which they were forwarded
	subscribed bool
}

// exchange is a command that awaits its reply.
type exchange struct {
	cmd     Command
	rules   []*Rule // rules on the reply
	pending int
}

// side is one end of a link. write and silence exclude each other: after silence returns, nothing is sent.
type side struct {
	mu     sync.Mutex
	conn   net.Conn // nil until the server is dialled
	silent bool     // writes are discarded; never reset
}

func newLink(p *Proxy, client net.Conn) *link {
	l := &link{proxy: p, client: &side{conn: client}, server: &side{}}
	l.ctx, l.cancel = context.WithCancel(p.ctx)
	return l
}

// dial connects to the target. It reports whether it succeeded.
func (l *link) dial() bool {
	conn, err := new(net.Dialer).DialContext(l.ctx, "tcp", l.proxy.target)
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

// run forwards in both directions. It returns when both sides have ended.
func (l *link) run() {
	var replies sync.WaitGroup
	if l.server.conn != nil {
		replies.Go(l.replies)
	}
	l.requests()
	replies.Wait()
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	l.client.conn.Close()
	if l.server.conn != nil {
		l.server.conn.Close()
	}
}

func (l *link) closed() bool { return l.ctx.Err() != nil }

// requests forwards commands to the server. When the client closes its end, the server sees that after the last
// command, so it still sends all replies.
func (l *link) requests() {
	defer l.server.closeWrite()
	in := newSplitter(l.client.conn)
	for {
		pipelined := in.buffered() // arrived with the previous command
		cmd, err := in.command()
		if err != nil {
			l.reportMalformed("client", err)
			return
		}
		if !pipelined {
			l.wait(l.proxy.currentDelay())
		}
		onRequest, onReply := l.proxy.rulesFor(cmd)
		for _, r := range onRequest {
			r.act(l, cmd)
		}
		if l.closed() {
			return
		}
		l.forward(cmd, onReply, pipelined)
	}
}

// replies forwards replies to the client until the server closes its end.
func (l *link) replies() {
	defer func() {
		if !l.client.isSilent() {
			l.close()
		}
	}()
	in := newSplitter(l.server.conn)
	for {
		r, err := in.reply()
		if err != nil {
			l.reportMalformed("server", err)
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

// forward sends cmd to the server, and adds it to the commands without a reply.
func (l *link) forward(cmd Command, onReply []*Rule, pipelined bool) {
	s := l.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent {
		return
	}
	alone := l.enqueue(&exchange{cmd: cmd, rules: onReply, pending: cmd.confirmations()})
	if alone && !pipelined {
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

// enqueue adds x, and reports whether it is the only one.
func (l *link) enqueue(x *exchange) (alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unanswered = append(l.unanswered, x)
	l.subscribed = l.subscribed || x.pending > 0
	return len(l.unanswered) == 1
}

// answered returns the exchange that r replies to, or nil if the server sent r unasked.
func (l *link) answered(r reply) *exchange {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.unanswered) == 0 {
		return nil
	}
	x := l.unanswered[0]
	if r.pushed(l.subscribed) {
		if x.pending == 0 || !strings.EqualFold(r.word, x.cmd.Name) {
			return nil
		}
		x.pending--
		if x.pending > 0 {
			return x
		}
	}
	l.unanswered = l.unanswered[1:]
	return x
}

func (l *link) wait(d time.Duration) {
	if d > 0 {
		ctx, cancel := context.WithTimeout(l.ctx, d)
		<-ctx.Done()
		cancel()
	}
}

// reportMalformed closes the link if it received something other than RESP. It only logs that, because the test may
// intend it.
func (l *link) reportMalformed(who string, err error) {
	if errors.Is(err, errProtocol) {
		l.proxy.t.Logf("redistest: the proxy of %s closes a connection: from the %s: %v", l.proxy.target, who, err)
		l.close()
	}
}

// write sends b, or discards it if the side is silent. It ignores errors: the goroutine that reads from this side gets
// them too.
func (s *side) write(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.silent {
		_, _ = s.conn.Write(b)
	}
}

func (s *side) closeWrite() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if conn, ok := s.conn.(*net.TCPConn); ok && !s.silent {
		_ = conn.CloseWrite()
	}
}

func (s *side) silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = true
}

func (s *side) isSilent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent
}
