package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"sync"
	"time"
)

// A store holds the records of all instances, and the payments, in memory and in a file. One line of the file has a
// response together with the payments that it reports, so that a crash loses both or neither. Its methods are safe for
// concurrent use.
type store struct {
	late     sync.RWMutex // held for reading by the responses on their way, see endLater
	mu       sync.Mutex
	file     *os.File
	down     bool
	epoch    int // the number of restarts: a request that began before the last one is dead
	records  map[string]*record
	payments []payment
}

type payment struct {
	ID, User string
}

// response is what the handler has answered. Trailer may be nil.
type response struct {
	Status          int
	Header, Trailer http.Header
	Body            []byte
	title           string // of a problem document
}

// A record is what the store knows of a key.
type record struct {
	print    string
	response *response     // nil while the request runs
	ended    chan struct{} // closed when the request has its response, or has freed the key
}

// A claim is the right to run a request.
type claim struct {
	scope string
	*record
}

func newClaim(scope, print string) *claim {
	return &claim{scope, &record{print: print, ended: make(chan struct{})}}
}

// A process is the store as an instance sees it. It is refused when the instance was killed.
type process struct {
	*store
	epoch int // of the store when the instance was started
}

// line is a line of the file. Scope is empty in a line that has only payments.
type line struct {
	Scope, Print string
	Response     *response
	Payments     []payment
}

var (
	errDown   = errors.New("the store is down")
	errKilled = errors.New("the process that ran the request was killed")
)

func openStore(name string) (*store, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	s := &store{file: file}
	return s, s.restart()
}

// lock locks the store and returns what unlocks it.
func (s *store) lock() func() {
	s.mu.Lock()
	return s.mu.Unlock
}

// restart forgets what is in memory and reads the file.
func (s *store) restart() error {
	defer s.lock()()
	s.epoch++
	s.records, s.payments = make(map[string]*record), nil
	if _, err := s.file.Seek(0, 0); err != nil {
		return err
	}
	lines := json.NewDecoder(bufio.NewReader(s.file))
	for lines.More() {
		var l line
		if err := lines.Decode(&l); err != nil {
			return err
		}
		s.payments = append(s.payments, l.Payments...)
		if l.Scope != "" {
			c := newClaim(l.Scope, l.Print)
			c.response = l.Response
			close(c.ended)
			s.records[l.Scope] = c.record
		}
	}
	return nil
}

// setDown takes the store down, or brings it back, when no response is on its way.
func (s *store) setDown(down bool) {
	s.late.Lock()
	defer s.late.Unlock()
	defer s.lock()()
	s.down = down
}

// process returns the store for an instance that starts.
func (s *store) process() process {
	defer s.lock()()
	return process{s, s.epoch}
}

// usable returns an error if the store is down, or if the process that asks was killed. The caller holds p.mu.
func (p process) usable() error {
	switch {
	case p.epoch != p.store.epoch:
		return errKilled
	case p.down:
		return errDown
	}
	return nil
}

// claim gives the scope to the caller if it is free. Otherwise it returns a copy of the record that the scope has.
func (p process) claim(scope, print string) (mine *claim, found *record, err error) {
	defer p.lock()()
	if found, err = p.lookLocked(scope); found != nil || err != nil {
		return nil, found, err
	}
	return p.take(scope, print), nil, nil
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

// take gives the scope to the caller, even if another has it. The caller holds s.mu.
func (s *store) take(scope, print string) *claim {
	c := newClaim(scope, print)
	s.records[scope] = c.record
	return c
}

// commit makes the payments and stores the response, in one line, and ends the claim. After an error neither is done and
// the claim has not ended.
func (p process) commit(c *claim, r *response, made []payment) error {
	err := p.write(line{c.scope, c.print, r, made})
	if err == nil {
		p.end(c, r)
	}
	return err
}

// pay makes payments outside of any claim.
func (p process) pay(made []payment) error { return p.write(line{Payments: made}) }

// write appends the line to the file and its payments to those in memory.
func (p process) write(l line) error {
	defer p.lock()()
	if err := p.usable(); err != nil {
		return err
	}
	return p.append(l)
}

// append is write without a question. The caller holds s.mu.
func (s *store) append(l line) error {
	if err := json.NewEncoder(s.file).Encode(l); err != nil {
		return err
	}
	s.payments = append(s.payments, l.Payments...)
	return nil
}

// end ends the claim with the response, in memory, unless the process was killed.
func (p process) end(c *claim, r *response) {
	defer p.lock()()
	if p.epoch == p.store.epoch {
		c.response = r
		p.records[c.scope] = c.record
		close(c.ended)
	}
}

// endLater ends the claim with the response after the delay. It never writes to the file, so a crash at any later time
// loses the response, however long the crash takes to happen.
func (p process) endLater(delay time.Duration, c *claim, r *response) {
	p.late.RLock()
	time.AfterFunc(delay, func() {
		defer p.late.RUnlock()
		p.end(c, r)
	})
}

// free ends a claim without a response: the next request with its key runs. It does nothing if the claim has ended.
func (s *store) free(c *claim) {
	defer s.lock()()
	select {
	case <-c.ended:
		return
	default:
	}
	if s.records[c.scope] == c.record {
		delete(s.records, c.scope)
	}
	close(c.ended)
}

// forget removes the record of a scope.
func (s *store) forget(scope string) {
	defer s.lock()()
	delete(s.records, scope)
}

// of returns the user's payments, or those of all users.
func (s *store) of(user string) []payment {
	defer s.lock()()
	list := []payment{}
	for _, p := range s.payments {
		if user == "" || p.User == user {
			list = append(list, p)
		}
	}
	return list
}
