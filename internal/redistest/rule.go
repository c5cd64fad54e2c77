package redistest

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Rule is a fault that a [Proxy] causes at matching commands, from its creation until Lift. If several rules match,
// those on the command act before those on its reply, each in order of creation.
type Rule struct {
	proxy   *Proxy
	match   Match
	onReply bool
	effect  effect

	lift   sync.Once
	lifted chan struct{}

	hits   atomic.Int64
	unseen chan Command // hits that Wait has not returned yet
}

// unseenHits is how many hits Wait can return later.
const unseenHits = 1000

type effect int

const (
	cut effect = iota
	swallow
	hold
)

// CutBefore closes the connection when a matching command arrives. The server never receives that command. Earlier
// replies of its pipeline may be lost too.
func (p *Proxy) CutBefore(m Match) *Rule { return p.addRule(m, false, cut) }

// DropReply forwards a matching command, waits for the server's reply, discards it and closes the connection. The
// server has executed the command, and the client cannot know.
func (p *Proxy) DropReply(m Match) *Rule { return p.addRule(m, true, cut) }

// SwallowReply forwards a matching command, and discards its reply and everything after it. The connection stays open,
// and further commands on it reach the server. [Proxy.Heal] closes it.
func (p *Proxy) SwallowReply(m Match) *Rule { return p.addRule(m, true, swallow) }

// HoldRequest holds a matching command, and all after it on the connection, until Lift. The server then gets them even
// if the client has timed out and closed its end.
func (p *Proxy) HoldRequest(m Match) *Rule { return p.addRule(m, false, hold) }

// HoldReply forwards a matching command, and holds its reply, and all after it on the connection, until Lift.
func (p *Proxy) HoldReply(m Match) *Rule { return p.addRule(m, true, hold) }

func (p *Proxy) addRule(m Match, onReply bool, e effect) *Rule {
	r := &Rule{
		proxy:   p,
		match:   m,
		onReply: onReply,
		effect:  e,
		lifted:  make(chan struct{}),
		unseen:  make(chan Command, unseenHits),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r
}

// Wait returns the next command on which the rule has acted, as soon as there is one. The rule has already taken
// effect: for example, the command is held. Wait fails the test if no command matches in time.
func (r *Rule) Wait(t testing.TB) Command {
	t.Helper()
	select {
	case cmd := <-r.unseen:
		return cmd
	case <-time.After(patience):
		t.Fatalf("redistest: no command has matched the rule within %v", patience)
	}
	return Command{}
}

// Hits returns the number of commands on which the rule has acted.
func (r *Rule) Hits() int { return int(r.hits.Load()) }

// Lift ends the rule and releases what it holds.
func (r *Rule) Lift() {
	r.lift.Do(func() {
		close(r.lifted)
		p := r.proxy
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rules = slices.DeleteFunc(p.rules, func(other *Rule) bool { return other == r })
	})
}

// act applies the rule to l, unless it was lifted after cmd arrived.
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
	case swallow:
		l.client.silence()
		r.report(cmd)
	case hold:
		r.report(cmd)
		select {
		case <-r.lifted:
		case <-l.ctx.Done():
		}
	}
}

// report counts a hit, and wakes Wait.
func (r *Rule) report(cmd Command) {
	r.hits.Add(1)
	select {
	case r.unseen <- cmd:
	default:
	}
}
