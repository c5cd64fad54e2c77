package dbtest

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// Rule is a fault that a [Proxy] causes at the first request that it matches. Use one rule for each fault.
type Rule struct {
	match   Match
	onReply bool               // it acts when the server has executed the request
	act     func(*Rule, *link) // closes hit

	hit    chan struct{} // closed when it has acted on a request
	lift   sync.Once
	lifted chan struct{}
}

// CutBefore closes the connection when a matching request arrives. The server never sees it.
func (p *Proxy) CutBefore(m Match) *Rule { return p.addRule(m, false, (*Rule).cut) }

// Delay closes the client's connection when a matching request arrives, and forwards the request when the rule is
// lifted: it reaches the server after its caller gave up.
func (p *Proxy) Delay(m Match) *Rule {
	return p.addRule(m, false, func(r *Rule, l *link) {
		l.client.Close()
		r.hold(l)
	})
}

// HoldRequest keeps a matching request from the server until the rule is lifted. If the connection is closed before, by
// [Proxy.Cut] or [Proxy.Down], the server never sees it.
func (p *Proxy) HoldRequest(m Match) *Rule { return p.addRule(m, false, (*Rule).hold) }

// DropReply forwards a matching request, waits for the server's reply, discards it and closes the connection. The
// server has executed the request, and the client cannot know.
func (p *Proxy) DropReply(m Match) *Rule { return p.addRule(m, true, (*Rule).cut) }

// HoldReply forwards a matching request, and keeps the server's reply from the client until the rule is lifted.
func (p *Proxy) HoldReply(m Match) *Rule { return p.addRule(m, true, (*Rule).hold) }

func (p *Proxy) addRule(m Match, onReply bool, act func(*Rule, *link)) *Rule {
	r := &Rule{match: m, onReply: onReply, act: act, hit: make(chan struct{}), lifted: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r
}

func (r *Rule) cut(l *link) {
	l.close()
	close(r.hit)
}

func (r *Rule) hold(l *link) {
	close(r.hit)
	select {
	case <-r.lifted:
	case <-l.done:
	}
}

// Wait returns when the rule has acted on a request: for example, the request is held. It fails the test if no request
// matches in time.
func (r *Rule) Wait(t testing.TB) {
	t.Helper()
	select {
	case <-r.hit:
	case <-time.After(30 * time.Second):
		t.Fatal("dbtest: no request has met the rule within 30 s")
	}
}

// Lift ends the rule, and releases what it holds.
func (r *Rule) Lift() { r.lift.Do(func() { close(r.lifted) }) }

// matching returns the rules for a request and for its reply, or nil. It is the first request that they match.
func (p *Proxy) matching(statement string) (onRequest, onReply *Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = slices.DeleteFunc(p.rules, func(r *Rule) bool {
		found := &onRequest
		if r.onReply {
			found = &onReply
		}
		if *found != nil || !r.match(statement) {
			return false
		}
		*found = r
		return true
	})
	return onRequest, onReply
}
