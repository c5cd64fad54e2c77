package main

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// storeDefects lose what they know, or go on without it.
var storeDefects = []defect{{
	name: "restart-forgets", about: "the records are in memory only", brief: true,
	fails: []string{"crash/at-most-once", "crash/after-answer"},
	spoil: inside(func(s *server) {
		s.commit = func(c *claim, _ *http.Request, answer *response, made []payment) error {
			if err := s.store.pay(s.epoch, made...); err != nil {
				return err
			}
			s.store.mu.Lock()
			defer s.store.mu.Unlock()
			c.response = answer
			s.store.records[c.scope] = c.record
			close(c.ended)
			return nil
		}
	}),
}, {
	name: "stored-before-effect", about: "the response is stored, and then the payment is made", brief: true,
	fails: []string{"crash/no-wrong-success"},
	spoil: inside(func(s *server) {
		s.work = func(*http.Request) {}
		s.commit = func(c *claim, r *http.Request, answer *response, made []payment) error {
			if err := s.store.commit(c, answer); err != nil {
				return err
			}
			work(r)
			return s.store.pay(s.epoch, made...)
		}
	}),
}, {
	name: "stored-after-effect", about: "the payment is made, and then the response is stored",
	fails: []string{"crash/at-most-once"},
	spoil: inside(func(s *server) {
		s.work = func(*http.Request) {}
		s.commit = func(c *claim, r *http.Request, answer *response, made []payment) error {
			if err := s.store.pay(s.epoch, made...); err != nil {
				return err
			}
			work(r)
			return s.store.commit(c, answer)
		}
	}),
}, {
	name: "stored-after-answer", about: "the response is sent, and stored a moment later",
	fails: []string{"crash/at-most-once", "crash/after-answer"},
	spoil: inside(func(s *server) {
		s.commit = func(c *claim, r *http.Request, answer *response, made []payment) error {
			if err := s.store.pay(s.epoch, made...); err != nil {
				return err
			}
			s.store.endLater(3*gap, c, answer)
			return nil
		}
	}),
}, {
	name: "large-runs-again", about: "a response of 1 MiB and more is not stored, and its key is freed",
	fails: []string{"once/samples", "replay/body-large", "replay/location", "replay/headers", "replay/marked"},
	spoil: inside(func(s *server) {
		s.commit = func(c *claim, _ *http.Request, answer *response, made []payment) error {
			if len(answer.Body) < 1<<20 {
				return s.store.commit(c, answer, made...)
			}
			defer s.store.free(c)
			return s.store.pay(s.epoch, made...)
		}
	}),
}, {
	name: "crash-locks", about: "after a crash the key of a request that ran is answered by 409 for ever", locks: true,
	fails: []string{"crash/answered"},
	spoil: inside(func(s *server) {
		s.claim = persistClaim(s, nil)
	}),
}, {
	name: "crash-success", about: "after a crash the request that ran is called a success",
	fails: []string{"crash/no-wrong-success"},
	spoil: inside(func(s *server) {
		s.claim = persistClaim(s, &response{
			Status: http.StatusCreated, Header: http.Header{}, Body: []byte(`{"id":"pending"}`),
		})
	}),
}, {
	name: "failed-frees", about: "a request that ends with a 5xx frees its key, although the payment is made", brief: true,
	fails: []string{"errors/failed-once"},
	spoil: inside(func(s *server) {
		s.commit = func(c *claim, r *http.Request, answer *response, made []payment) error {
			if answer.Status < 500 {
				return s.store.commit(c, answer, made...)
			}
			defer s.store.free(c)
			return s.store.pay(s.epoch, made...)
		}
	}),
}, {
	name: "failed-success", about: "the repetition of a request that failed is told that all is well",
	fails: []string{"errors/failed-not-success"},
	spoil: inside(func(s *server) {
		s.free = func(c *claim) {
			_ = s.store.commit(c, &response{Status: http.StatusOK, Header: http.Header{}, Body: []byte("{}")})
		}
	}),
}, {
	name: "panic-locks", about: "after a panic of its handler the key is answered by 409 for ever", locks: true,
	fails: []string{"errors/failed-answered"},
	spoil: inside(func(s *server) { s.free = func(*claim) {} }),
}, {
	name: "down-runs", about: "while the store is down, requests run unprotected", brief: true,
	fails: []string{"store/down-once", "store/down-completed"},
	spoil: inside(func(s *server) {
		s.claim = func(scope, print string) (*claim, *record, error) {
			mine, found, err := s.store.claim(s.epoch, scope, print)
			if errors.Is(err, errDown) {
				return &claim{scope, s.epoch, &record{print: print, ended: make(chan struct{})}}, nil, nil
			}
			return mine, found, err
		}
		s.commit = func(c *claim, _ *http.Request, answer *response, made []payment) error {
			if err := s.store.commit(c, answer, made...); !errors.Is(err, errDown) {
				return err
			}
			s.store.payWhileDown(s.epoch, made)
			return nil
		}
	}),
}, {
	name: "down-hangs", about: "while the store is down, requests hang", hangs: true,
	fails: []string{"store/down-answered"},
	spoil: inside(func(s *server) {
		s.claim = func(scope, print string) (*claim, *record, error) {
			for {
				mine, found, err := s.store.claim(s.epoch, scope, print)
				if !errors.Is(err, errDown) {
					return mine, found, err
				}
				time.Sleep(gap)
			}
		}
	}),
}, {
	name: "down-success", about: "while the store is down, requests do not run and are told that all is well",
	fails: []string{"store/down-completed"},
	spoil: inside(func(s *server) {
		s.problem = func(w http.ResponseWriter, status, retryAfter int, title string) {
			if status == http.StatusServiceUnavailable {
				status = http.StatusAccepted
			}
			problem(w, status, retryAfter, title)
		}
	}),
}, {
	name: "down-for-ever", about: "after the store was down, nothing runs any more", locks: true,
	fails: []string{"store/recovers", "store/remembers", "load/shuffled"},
	spoil: inside(func(s *server) {
		var broken atomic.Bool
		s.claim = func(scope, print string) (*claim, *record, error) {
			if broken.Load() {
				return nil, nil, errDown
			}
			mine, found, err := s.store.claim(s.epoch, scope, print)
			if errors.Is(err, errDown) {
				broken.Store(true)
			}
			return mine, found, err
		}
	}),
}, {
	name: "few-records", about: "each instance keeps the last 75 records",
	fails: []string{"load/shuffled"},
	spoil: inside(func(s *server) {
		kept := make(chan string, 75)
		var turn sync.Mutex
		s.commit = func(c *claim, _ *http.Request, answer *response, made []payment) error {
			turn.Lock()
			defer turn.Unlock()
			select {
			case kept <- c.scope:
			default:
				s.store.forget(<-kept)
				kept <- c.scope
			}
			return s.store.commit(c, answer, made...)
		}
	}),
}}

// persistClaim writes each claim to the file, with what a restart is to find there.
func persistClaim(s *server, found *response) func(scope, print string) (*claim, *record, error) {
	return func(scope, print string) (*claim, *record, error) {
		s.store.mu.Lock()
		defer s.store.mu.Unlock()
		other, err := s.store.look(s.epoch, scope)
		if other != nil || err != nil {
			return nil, other, err
		}
		return s.store.take(scope, print), nil, s.store.write(s.epoch, line{Scope: scope, Print: print, Response: found})
	}
}

// payWhileDown makes payments without the store.
func (s *store) payWhileDown(epoch int, made []payment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	down := s.down
	s.down = false
	_ = s.write(epoch, line{Payments: made})
	s.down = down
}
