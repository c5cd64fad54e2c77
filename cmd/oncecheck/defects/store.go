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
	mu       sync.Mutex
	file     *os.File
	down     bool
	late     int       // the responses on their way, see endLater
	arrived  sync.Cond // on mu: late has fallen
	epoch    int       // the number of restarts: a request that began before the last one is dead
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
	epoch int
	*record
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
	s.arrived.L = &s.mu
	return s, s.restart()
}

// restart forgets what is in memory and reads the file.
func (s *store) restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
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
			s.records[l.Scope] = &record{print: l.Print, response: l.Response, ended: closed()}
		}
	}
	return nil
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// setDown takes the store down, or brings it back, when no response is on its way.
func (s *store) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.late > 0 {
		s.arrived.Wait()
	}
	s.down = down
}

// claim gives the scope to the caller if it is free. Otherwise it returns the record that the scope has.
func (s *store) claim(epoch int, scope, print string) (mine *claim, found *record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err = s.look(epoch, scope)
	if found != nil || err != nil {
		return nil, found, err
	}
	return s.take(scope, print), nil, nil
}

// look returns a copy of the scope's record, or nil. The caller holds s.mu.
func (s *store) look(epoch int, scope string) (*record, error) {
	if err := s.usable(epoch); err != nil {
		return nil, err
	}
	r, ok := s.records[scope]
	if !ok {
		return nil, nil
	}
	copied := *r
	return &copied, nil
}

// take gives the scope to the caller, even if another has it. The caller holds s.mu.
func (s *store) take(scope, print string) *claim {
	c := &claim{scope: scope, epoch: s.epoch, record: &record{print: print, ended: make(chan struct{})}}
	s.records[scope] = c.record
	return c
}

// usable returns an error if the store is down, or if the process that asks was killed. The caller holds s.mu.
func (s *store) usable(epoch int) error {
	switch {
	case epoch != s.epoch:
		return errKilled
	case s.down:
		return errDown
	}
	return nil
}

// commit makes the payments and stores the response, in one step, and ends the claim. After an error neither is done and
// the claim has not ended.
func (s *store) commit(c *claim, r *response, payments ...payment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.write(c.epoch, line{c.scope, c.print, r, payments}); err != nil {
		return err
	}
	s.end(c, r)
	return nil
}

// keep writes what commit writes, and does not end the claim.
func (s *store) keep(c *claim, r *response, payments ...payment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(c.epoch, line{c.scope, c.print, r, payments})
}

// end ends the claim with the response, in memory. The caller holds s.mu.
func (s *store) end(c *claim, r *response) {
	c.response = r
	s.records[c.scope] = c.record
	close(c.ended)
}

// endLater ends the claim with the response after the delay. It never writes to the file, so a crash at any later time
// loses the response, however long the crash takes to happen.
func (s *store) endLater(delay time.Duration, c *claim, r *response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late++
	time.AfterFunc(delay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.epoch == s.epoch {
			s.end(c, r)
		}
		s.late--
		s.arrived.Broadcast()
	})
}

// pay makes payments outside of any claim.
func (s *store) pay(epoch int, payments ...payment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(epoch, line{Payments: payments})
}

// write appends the line to the file and its payments to those in memory. The caller holds s.mu.
func (s *store) write(epoch int, l line) error {
	if err := s.usable(epoch); err != nil {
		return err
	}
	if err := json.NewEncoder(s.file).Encode(l); err != nil {
		return err
	}
	s.payments = append(s.payments, l.Payments...)
	return nil
}

// free ends a claim without a response: the next request with its key runs. It does nothing if the claim has ended.
func (s *store) free(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
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

// now returns the current epoch.
func (s *store) now() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

// of returns the user's payments.
func (s *store) of(user string) []payment {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []payment{}
	for _, p := range s.payments {
		if p.User == user {
			list = append(list, p)
		}
	}
	return list
}

// count returns how many payments there are, of all users.
func (s *store) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.payments)
}
