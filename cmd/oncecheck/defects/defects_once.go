package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// gap is how long the moment lasts in which a race can be lost. It is long enough for a busy machine to lose it.
const gap = 100 * time.Millisecond

// onceDefects run a request twice.
var onceDefects = []defect{{
	name: "unprotected", about: "the key is checked and then ignored",
	fails: []string{
		"key/spelling", "key/never-unprotected", "key/name-case", "once/repeat", "once/repeat-later", "once/concurrent",
		"once/instances-repeat", "once/instances-concurrent", "once/http2", "once/expect-continue", "once/chunked",
		"once/client-leaves", "once/answer-lost", "once/sent-twice", "once/sent-twice-at-once", "once/samples", "replay/body",
		"replay/body-binary", "replay/body-large", "replay/redirect", "replay/location", "replay/headers",
		"replay/trailers", "replay/marked", "replay/encoding", "mismatch/body", "mismatch/original-stays",
		"mismatch/whitespace", "mismatch/in-flight", "scope/user-runs", "inflight/answer", "inflight/once",
		"inflight/then-replay", "errors/failed-once", "store/remembers", "crash/at-most-once", "crash/after-answer", "load/shuffled",
	},
	spoil: changeKey(func(string) string { return freshKey() }),
}, {
	name: "looks-then-locks", about: "a request looks for a record, and then writes its own", brief: true,
	fails: []string{
		"once/concurrent", "once/instances-concurrent", "once/http2", "once/sent-twice-at-once", "load/shuffled",
	},
	spoil: inside(func(s *server) {
		s.claim = func(scope, print string) (*claim, *record, error) {
			s.store.mu.Lock()
			found, err := s.store.look(s.epoch, scope)
			s.store.mu.Unlock()
			if found != nil || err != nil {
				return nil, found, err
			}
			time.Sleep(gap)
			s.store.mu.Lock()
			defer s.store.mu.Unlock()
			return s.store.take(scope, print), nil, nil
		}
	}),
}, {
	name: "lock-per-process", about: "responses are shared, but an instance does not see what runs on the other", brief: true,
	fails: []string{"once/instances-concurrent", "load/shuffled"},
	spoil: inside(func(s *server) {
		s.claim = func(scope, print string) (*claim, *record, error) {
			s.store.mu.Lock()
			defer s.store.mu.Unlock()
			for _, name := range []string{scope, s.name + scope} {
				if found, err := s.store.look(s.epoch, name); found != nil || err != nil {
					return nil, found, err
				}
			}
			return s.store.take(s.name+scope, print), nil, nil
		}
		s.commit = func(c *claim, _ *http.Request, answer *response, made []payment) error {
			shared := *c
			shared.scope = strings.TrimPrefix(c.scope, s.name)
			time.Sleep(gap)
			return s.store.commit(&shared, answer, made...)
		}
	}),
}, {
	name: "store-per-process", about: "each instance has records of its own",
	fails: []string{"once/instances-repeat", "once/instances-concurrent", "load/shuffled"},
	spoil: inside(func(s *server) {
		s.scopeOf = func(r *http.Request, key string) string { return s.name + scope(r, key) }
	}),
}, {
	name: "unlocked-before-stored", about: "the claim is freed, and then the response is stored", wait: true,
	fails: []string{
		"once/concurrent", "once/instances-concurrent", "once/http2", "once/client-leaves", "once/sent-twice-at-once",
		"inflight/answer", "inflight/once", "inflight/then-replay", "load/shuffled",
	},
	spoil: inside(func(s *server) {
		s.commit = func(c *claim, _ *http.Request, answer *response, made []payment) error {
			if err := s.store.pay(s.epoch, made...); err != nil {
				return err
			}
			s.store.free(c)
			time.Sleep(gap)
			return s.store.commit(&claim{c.scope, c.epoch, &record{print: c.print, ended: make(chan struct{})}}, answer)
		}
	}),
}, {
	name: "forgets-soon", about: "a response is kept until nothing has been asked or answered for 1.9 seconds",
	fails: []string{"once/repeat-later"},
	spoil: func(s *server, h http.Handler) http.Handler {
		var mu sync.Mutex
		var last string // the scope of the last response that was stored
		var at time.Time
		s.commit = func(c *claim, _ *http.Request, answer *response, made []payment) error {
			mu.Lock()
			defer mu.Unlock()
			last, at = c.scope, time.Now()
			return s.store.commit(c, answer, made...)
		}
		s.send = func(w http.ResponseWriter, answer *response) {
			mu.Lock()
			at = time.Now()
			mu.Unlock()
			send(w, answer)
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			if time.Since(at) >= 1900*time.Millisecond { // no timer, which a busy machine may run too late
				s.store.forget(last)
			}
			at = time.Now()
			mu.Unlock()
			h.ServeHTTP(w, r)
		})
	},
}, {
	name: "expect-unprotected", about: "a request with Expect: 100-continue runs under a fresh key",
	fails: []string{"once/expect-continue"},
	spoil: unprotected(func(r *http.Request) bool { return r.Header.Get("Expect") != "" }),
}, {
	name: "chunked-unprotected", about: "a chunked request runs under a fresh key",
	fails: []string{"once/chunked"},
	spoil: unprotected(func(r *http.Request) bool { return r.ContentLength < 0 }),
}, {
	name: "http2-unprotected", about: "a request over HTTP/2 runs under a fresh key",
	fails: []string{"once/http2"},
	spoil: unprotected(func(r *http.Request) bool { return r.ProtoMajor == 2 }),
}, {
	name: "disconnect-frees", about: "a client that leaves ends the claim, although the payment is made", brief: true,
	fails: []string{"once/client-leaves"},
	spoil: inside(func(s *server) {
		s.commit = func(c *claim, r *http.Request, answer *response, made []payment) error {
			if r.Context().Err() == nil {
				return s.store.commit(c, answer, made...)
			}
			defer s.store.free(c)
			return s.store.pay(s.epoch, made...)
		}
	}),
}, {
	name: "disconnect-locks", about: "a client that leaves ends the request, and the key stays locked", locks: true,
	fails: []string{"once/client-leaves-answered"},
	spoil: inside(func(s *server) {
		s.commit = func(c *claim, r *http.Request, answer *response, made []payment) error {
			if r.Context().Err() == nil {
				return s.store.commit(c, answer, made...)
			}
			return s.store.pay(s.epoch, made...)
		}
	}),
}, {
	name: "cut-body-runs", about: "a request whose body is cut off runs with what has come",
	fails: []string{"once/request-cut"},
	spoil: outside(func(h http.Handler, w http.ResponseWriter, r *http.Request) {
		r.Body = lenient{r.Body}
		h.ServeHTTP(w, r)
	}),
}, {
	name: "cut-body-locks", about: "a request whose body is cut off does not run, and keeps its key",
	fails: []string{"once/request-cut"},
	spoil: func(s *server, h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if key, bad := parseKey(r.Header); err != nil && bad == nil {
				_, _, _ = s.claim(scope(r, key), print(r, body))
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			h.ServeHTTP(w, r)
		})
	},
}, {
	name: "lease-not-renewed", about: "the claim of a slow request runs out after 100 ms",
	fails: []string{
		"once/client-leaves", "mismatch/in-flight", "inflight/answer", "inflight/once", "inflight/then-replay",
	},
	spoil: inside(func(s *server) {
		s.claim = func(scope, print string) (*claim, *record, error) {
			mine, found, err := s.store.claim(s.epoch, scope, print)
			if mine != nil && strings.Contains(print, "slow=") { // another may take as long on a busy machine
				time.AfterFunc(gap, func() { s.store.expire(mine) })
			}
			return mine, found, err
		}
	}),
}, {
	name: "deduped-by-body", about: "an equal body under another key gets the stored response", locks: true,
	fails: []string{"key/length-distinct", "key/value-case", "once/keys-differ", "errors/failed-answered"},
	spoil: inside(func(s *server) {
		s.claim = func(scope, print string) (*claim, *record, error) {
			s.store.mu.Lock()
			defer s.store.mu.Unlock()
			same := scope[:strings.LastIndex(scope, " ")] + print // but for the key
			for _, name := range []string{scope, same} {
				if found, err := s.store.look(s.epoch, name); found != nil || err != nil {
					return nil, found, err
				}
			}
			mine := s.store.take(scope, print)
			s.store.records[same] = mine.record
			return mine, nil, nil
		}
	}),
}, {
	name: "duplicate-empty", about: "a duplicate of a running request waits, and gets an empty 200",
	fails: []string{"once/concurrent", "once/instances-concurrent", "once/http2", "inflight/answer", "load/shuffled"},
	spoil: inside(func(s *server) {
		s.answer = func(w http.ResponseWriter, r *http.Request, found *record, print string) {
			if found.print == print && found.response == nil {
				<-found.ended
				w.WriteHeader(http.StatusOK)
				return
			}
			s.answerFor(w, r, found, print)
		}
	}),
}}

func freshKey() string { return rand.Text() }

// forget removes the record of a scope.
func (s *store) forget(scope string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, scope)
}

// expire removes the record of a claim that has not ended.
func (s *store) expire(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.response == nil && s.records[c.scope] == c.record {
		delete(s.records, c.scope)
	}
}

// unprotected gives those requests a key that no other has.
func unprotected(which func(*http.Request) bool) func(*server, http.Handler) http.Handler {
	return outside(func(h http.Handler, w http.ResponseWriter, r *http.Request) {
		if _, err := parseKey(r.Header); err == nil && which(r) {
			r.Header.Set(keyHeader, freshKey())
		}
		h.ServeHTTP(w, r)
	})
}

// lenient takes the end of a connection for the end of the body.
type lenient struct{ io.ReadCloser }

// Read is an io.Reader's.
func (l lenient) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}
