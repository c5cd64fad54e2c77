package redistest

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// Rule is a fault that a [Proxy] brings about at the commands it matches, until
// it is lifted. It is about commands that arrive at the proxy after it was
// made. Several rules may match one command: they act in the order in which
// they were made, first those on the command and then those on its reply.
type Rule struct {
	proxy   *Proxy
	match   Match
	onReply bool
	effect  effect

	lift   sync.Once
	lifted chan struct{}

	mu     sync.Mutex
	hits   int
	unseen []Command     // hits that Wait has not returned
	news   chan struct{} // holds a token when unseen is not empty
}

type effect int

const (
	cut effect = iota
	mute
	hold
)

// CutBefore closes the connection when a matching command arrives, which the
// server never sees. Replies to earlier commands of the same pipeline may be
// lost with it.
func (p *Proxy) CutBefore(m Match) *Rule { return p.addRule(m, false, cut) }

// DropReply forwards a matching command, waits for the server's reply, throws
// that away and closes the connection: executed, and the client cannot know.
func (p *Proxy) DropReply(m Match) *Rule { return p.addRule(m, true, cut) }

// SwallowReply forwards a matching command, and from its reply on passes nothing
// to the client: executed, then silence. The connection stays open, and what
// the client still sends on it reaches the server. [Proxy.Heal] closes it.
func (p *Proxy) SwallowReply(m Match) *Rule { return p.addRule(m, true, mute) }

// HoldRequest keeps a matching command, and what follows it on the same
// connection, from the server until the rule is lifted. It is forwarded then
// even if the client has hung up meanwhile: a command that arrives after its
// caller gave up.
func (p *Proxy) HoldRequest(m Match) *Rule { return p.addRule(m, false, hold) }

// HoldReply forwards a matching command, and keeps the server's reply, and what
// follows it on the same connection, from the client until the rule is lifted.
func (p *Proxy) HoldReply(m Match) *Rule { return p.addRule(m, true, hold) }

func (p *Proxy) addRule(m Match, onReply bool, e effect) *Rule {
	r := &Rule{
		proxy:   p,
		match:   m,
		onReply: onReply,
		effect:  e,
		lifted:  make(chan struct{}),
		news:    make(chan struct{}, 1),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r
}

// Wait returns the next command that the rule has acted on, in their order,
// as soon as there is one: it is held, or the server has executed it and the
// connection is cut, and so on. The test ends if none comes.
func (r *Rule) Wait(t testing.TB) Command {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	select {
	case <-r.news:
	case <-deadline.C:
		t.Fatalf("redistest: no command has met the rule within %v", patience)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	cmd := r.unseen[0]
	r.unseen = r.unseen[1:]
	if len(r.unseen) > 0 {
		r.news <- struct{}{}
	}
	return cmd
}

// Hits is how many commands the rule has acted on.
func (r *Rule) Hits() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hits
}

// Lift ends the rule, and lets go of what it holds.
func (r *Rule) Lift() {
	r.lift.Do(func() {
		close(r.lifted)
		p := r.proxy
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rules = slices.DeleteFunc(p.rules, func(other *Rule) bool { return other == r })
	})
}

// act does to l what the rule says, unless it was lifted since cmd arrived.
func (r *Rule) act(l *link, cmd Command) {
	select {
	case <-r.lifted:
		return
	default:
	}
	switch r.effect {
	case cut:
		l.close()
		r.report(cmd)
	case mute:
		l.client.darken()
		r.report(cmd)
	case hold:
		r.report(cmd)
		select {
		case <-r.lifted:
		case <-l.done:
		}
	}
}

func (r *Rule) report(cmd Command) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hits++
	r.unseen = append(r.unseen, cmd)
	if len(r.unseen) == 1 {
		r.news <- struct{}{}
	}
}
