package main

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// A store holds the records of all instances, and the payments. A restart loses what is in no line. One line has a response
// together with the payments that it reports, so that a crash loses both or neither. Its methods are safe for concurrent use.
type store struct {
	mu      sync.Mutex
	down    bool
	lines   []line
	records map[string]*record
}

// line is what a restart finds. Scope is empty in a line that has only payments.
type line struct {
	scope, print string
	response     *response
	payments     []payment
}

type payment struct{ ID, User string }

// response is what the handler has answered.
type response struct {
	Status int
	Header http.Header
	Body   []byte
	title  string // of a problem document
}

// A record is what the store knows of a key.
type record struct {
	print    string
	response *response // nil while the request runs
	// Closed when the request has its response, or has freed the key.
	ended chan struct{}
}

func newRecord(print string) *record { return &record{print: print, ended: make(chan struct{})} }

var (
	errDown   = errors.New("the store is down")
	errKilled = errors.New("the process that ran the request was killed")
)

// lock locks the store and returns what unlocks it.
func (s *store) lock() func() {
	s.mu.Lock()
	return s.mu.Unlock
}

// restart kills the processes and forgets what is in no line.
func (s *store) restart(kill func()) {
	defer s.lock()()
	kill()
	s.records = map[string]*record{}
	for _, l := range s.lines {
		if l.scope != "" {
			r := newRecord(l.print)
			r.response = l.response
			close(r.ended)
			s.records[l.scope] = r
		}
	}
}

// setDown takes the store down, or brings it back.
func (s *store) setDown(down bool) {
	defer s.lock()()
	s.down = down
}

// of returns the user's payments, or those of all users.
func (s *store) of(user string) []payment {
	defer s.lock()()
	list := []payment{}
	for _, l := range s.lines {
		for _, p := range l.payments {
			if user == "" || p.User == user {
				list = append(list, p)
			}
		}
	}
	return list
}

// A process is the store as an instance sees it. It is refused when the instance was killed.
type process struct {
	*store
	killed context.Context // done when the process was killed
}

// usable returns an error if the store is down, or if the process that asks was killed. The caller holds p.mu.
func (p process) usable() error {
	switch {
	case p.killed.Err() != nil:
		return errKilled
	case p.down:
		return errDown
	}
	return nil
}

// claim gives the call its scope if that is free. Otherwise it gives it a copy of the record that the scope has.
func (p process) claim(c *call) (err error) {
	defer p.lock()()
	if c.found, err = p.lookLocked(c.scope); c.found == nil && err == nil {
		p.take(c)
	}
	return err
}

// look returns a copy of the scope's record, or nil.
func (p process) look(scope string) (*record, error) {
	defer p.lock()()
	return p.lookLocked(scope)
}

func (p process) lookLocked(scope string) (*record, error) {
	r, ok := p.records[scope]
	if err := p.usable(); err != nil || !ok {
		return nil, err
	}
	copied := *r
	return &copied, nil
}

// take gives the call its scope, even if another has it. The caller holds s.mu.
func (s *store) take(c *call) {
	c.mine = newRecord(c.print)
	s.records[c.scope] = c.mine
}

// commit makes the payments and stores the response, in one line, and ends the claim. After an error neither is done and
// the claim has not ended.
func (p process) commit(c *call) error {
	err := p.write(line{c.scope, c.print, c.reply, c.made})
	if err == nil {
		p.end(c)
	}
	return err
}

// pay makes the call's payments outside of its claim.
func (p process) pay(c *call) error {
	err := p.write(line{payments: c.made})
	c.made = nil
	return err
}

// write adds a line.
func (p process) write(l line) error {
	defer p.lock()()
	err := p.usable()
	if err == nil {
		p.lines = append(p.lines, l)
	}
	return err
}

// end ends the claim with the response, in memory, unless the process was killed.
func (p process) end(c *call) {
	defer p.lock()()
	if p.killed.Err() == nil {
		c.mine.response = c.reply
		p.records[c.scope] = c.mine
		close(c.mine.ended)
	}
}

// endLater is end after the delay. It writes no line, so a crash at any later time loses the response.
func (p process) endLater(delay time.Duration, c *call) {
	ended := *c
	time.AfterFunc(delay, func() { p.end(&ended) })
}

// free ends a claim without a response: the next request with its key runs. It does nothing if the claim has ended.
func (s *store) free(c *call) {
	defer s.lock()()
	select {
	case <-c.mine.ended:
		return
	default:
	}
	if s.records[c.scope] == c.mine {
		delete(s.records, c.scope)
	}
	close(c.mine.ended)
}

// forget removes the record of a scope.
func (s *store) forget(scope string) {
	defer s.lock()()
	delete(s.records, scope)
}
