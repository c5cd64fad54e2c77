package main

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// storeDefects lose what they know, or go on without it.
var storeDefects = []defect{
	{name: "restart-forgets", about: "the records are in memory only", fails: "crash/at-most-once crash/after-answer", brief: true,
		spoil: ends(func(p process, c *claim, _ *http.Request, a *response) { p.end(c, a) })},
	{name: "stored-before-effect", about: "the response is stored, and then the payment is made", fails: "crash/no-wrong-success",
		brief: true,
		spoil: all(idle, committed(func(p process, c *claim, r *http.Request, a *response, made []payment) error {
			if err := p.commit(c, a, nil); err != nil {
				return err
			}
			work(r)
			return p.pay(made)
		}))},
	{name: "stored-after-effect", about: "the payment is made, and then the response is stored", fails: "crash/at-most-once",
		spoil: all(idle, committed(func(p process, c *claim, r *http.Request, a *response, made []payment) error {
			if err := p.pay(made); err != nil {
				return err
			}
			work(r)
			return p.commit(c, a, nil)
		}))},
	{name: "stored-after-answer", about: "the response is sent, and stored a moment later",
		fails: "crash/at-most-once crash/after-answer",
		spoil: ends(func(p process, c *claim, _ *http.Request, a *response) { p.endLater(3*gap, c, a) })},
	{name: "large-runs-again", about: "a response of 1 MiB and more is not stored, and its key is freed",
		fails: "once/samples replay/body-large replay/location replay/headers replay/marked",
		spoil: unstored(true, func(_ *http.Request, a *response) bool { return len(a.Body) >= 1<<20 })},
	{name: "crash-locks", about: "after a crash the key of a request that ran is answered by 409 for ever", fails: "crash/answered",
		spoil: persists(nil), flags: locks},
	{name: "crash-success", about: "after a crash the request that ran is called a success", fails: "crash/no-wrong-success",
		spoil: persists(&response{Status: http.StatusCreated, Header: http.Header{}, Body: []byte(`{"id":"pending"}`)})},
	{name: "failed-frees", about: "a request that ends with a 5xx frees its key, although the payment is made", brief: true,
		fails: "errors/failed-once",
		spoil: unstored(true, func(_ *http.Request, a *response) bool { return a.Status >= 500 })},
	{name: "failed-success", about: "the repetition of a request that failed is told that all is well",
		fails: "errors/failed-not-success",
		spoil: func(s *server) {
			s.free = func(c *claim) {
				_ = s.store.commit(c, &response{Status: http.StatusOK, Header: http.Header{}, Body: []byte("{}")}, nil)
			}
		}},
	{name: "panic-locks", about: "after a panic of its handler the key is answered by 409 for ever", fails: "errors/failed-answered",
		spoil: func(s *server) { s.free = func(*claim) {} }, flags: locks},
	{name: "down-runs", about: "while the store is down, requests run unprotected", brief: true,
		fails: "store/down-once store/down-completed",
		spoil: all(
			claimed(func(p process, scope, print string) (*claim, *record, error) {
				mine, found, err := p.claim(scope, print)
				if errors.Is(err, errDown) {
					return newClaim(scope, print), nil, nil
				}
				return mine, found, err
			}), committed(func(p process, c *claim, _ *http.Request, a *response, made []payment) error {
				if err := p.commit(c, a, made); !errors.Is(err, errDown) {
					return err
				}
				defer p.lock()()
				return p.append(line{Payments: made})
			}))},
	{name: "down-hangs", about: "while the store is down, requests hang", fails: "store/down-answered", flags: hangs,
		spoil: claimed(func(p process, scope, print string) (*claim, *record, error) {
			for {
				mine, found, err := p.claim(scope, print)
				if !errors.Is(err, errDown) {
					return mine, found, err
				}
				time.Sleep(gap)
			}
		})},
	{name: "down-success", about: "while the store is down, requests do not run and are told that all is well",
		fails: "store/down-completed", spoil: status(http.StatusServiceUnavailable, "", http.StatusAccepted)},
	{name: "down-for-ever", about: "after the store was down, nothing runs any more",
		fails: "store/recovers store/remembers load/shuffled", flags: locks,
		spoil: func(s *server) {
			var broken atomic.Bool
			s.claim = func(scope, print string) (*claim, *record, error) {
				mine, found, err := s.store.claim(scope, print)
				if errors.Is(err, errDown) || broken.Load() {
					broken.Store(true)
					return nil, nil, errDown
				}
				return mine, found, err
			}
		}},
	{name: "few-records", about: "each instance keeps the last 75 records", fails: "load/shuffled",
		spoil: func(s *server) {
			kept, turn := make(chan string, 75), make(chan bool, 1)
			s.commit = func(c *claim, _ *http.Request, a *response, made []payment) error {
				turn <- true
				defer func() { <-turn }()
				if len(kept) == cap(kept) {
					s.store.forget(<-kept)
				}
				kept <- c.scope
				return s.store.commit(c, a, made)
			}
		}},
}

// idle leaves the work to the commit.
func idle(s *server) { s.work = func(*http.Request) {} }

// persists writes each claim to the file, with what a restart is to find there.
func persists(found *response) fault {
	return claimed(func(p process, scope, print string) (*claim, *record, error) {
		mine, other, err := p.claim(scope, print)
		if mine != nil {
			err = p.write(line{Scope: scope, Print: print, Response: found})
		}
		return mine, other, err
	})
}
