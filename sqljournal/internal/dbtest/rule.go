package dbtest

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// patience is how long Wait waits for a request.
const patience = 30 * time.Second

// Rule is a fault that a [Proxy] causes at the first request that it matches. Use one rule for each fault.
type Rule struct {
	proxy  *Proxy
	match  Match
	effect effect

	hit    chan struct{} // closed when it has acted on a request
	lift   sync.Once
	lifted chan struct{}

	spent bool // guarded by proxy.mu
}

type effect int

const (
	cutBefore effect = iota
	delay
	holdRequest
	dropReply
	holdReply
)

// CutBefore closes the connection when a matching request arrives. The server never sees it.
func (p *Proxy) CutBefore(m Match) *Rule { return p.addRule(m, cutBefore) }

// Delay closes the client's connection when a matching request arrives, and forwards the request when the rule is
// lifted: it reaches the server after its caller gave up.
func (p *Proxy) Delay(m Match) *Rule { return p.addRule(m, delay) }

// HoldRequest keeps a matching request from the server until the rule is lifted. If the connection is closed before, by
// [Proxy.Cut] or [Proxy.Down], the server never sees it.
func (p *Proxy) HoldRequest(m Match) *Rule { return p.addRule(m, holdRequest) }

// DropReply forwards a matching request, waits for the server's reply, discards it and closes the connection. The
// server has executed the request, and the client cannot know.
func (p *Proxy) DropReply(m Match) *Rule { return p.addRule(m, dropReply) }

// HoldReply forwards a matching request, and keeps the server's reply from the client until the rule is lifted.
func (p *Proxy) HoldReply(m Match) *Rule { return p.addRule(m, holdReply) }

func (p *Proxy) addRule(m Match, e effect) *Rule {
	r := &Rule{proxy: p, match: m, effect: e, hit: make(chan struct{}), lifted: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r
}

// Wait returns when the rule has acted on a request: for example, the request is held. It fails the test if no request
// matches in time.
func (r *Rule) Wait(t testing.TB) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-r.hit:
	case <-timer.C:
		t.Fatalf("dbtest: no request has met the rule within %v", patience)
	}
}

// Lift ends the rule, and releases what it holds.
func (r *Rule) Lift() { r.lift.Do(func() { close(r.lifted) }) }

// matching returns the rules for a request, which is the first that they match.
func (p *Proxy) matching(statements []string) (onRequest, onReply []*Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		if !r.match(statements) {
			continue
		}
		r.spent = true
		if r.effect == dropReply || r.effect == holdReply {
			onReply = append(onReply, r)
		} else {
			onRequest = append(onRequest, r)
		}
	}
	p.rules = slices.DeleteFunc(p.rules, func(r *Rule) bool { return r.spent })
	return onRequest, onReply
}

// act applies the rule to l.
func (r *Rule) act(l *link) {
	switch r.effect {
	case cutBefore, dropReply:
		l.close()
		close(r.hit)
	case delay:
		l.client.Close()
		close(r.hit)
		l.await(r.lifted)
	case holdRequest, holdReply:
		close(r.hit)
		l.await(r.lifted)
	}
}
