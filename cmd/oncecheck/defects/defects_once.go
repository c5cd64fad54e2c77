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

// onceDefects run a request twice.
var onceDefects = []defect{
	{name: "unprotected", about: "the key is checked and then ignored", spoil: changes(func(string) string { return rand.Text() }),
		fails: `key/spelling key/never-unprotected key/name-case once/repeat once/repeat-later once/concurrent
			once/instances-repeat once/instances-concurrent once/http2 once/expect-continue once/chunked
			once/client-leaves once/answer-lost once/sent-twice once/sent-twice-at-once once/samples replay/body
			replay/body-binary replay/body-large replay/redirect replay/location replay/headers
			replay/trailers replay/marked replay/encoding mismatch/body mismatch/original-stays
			mismatch/whitespace mismatch/in-flight scope/user-runs inflight/answer inflight/once
			inflight/then-replay errors/failed-once store/remembers crash/at-most-once crash/after-answer load/shuffled`},
	{name: "looks-then-locks", about: "a request looks for a record, and then writes its own", brief: true,
		fails: "once/concurrent once/instances-concurrent once/http2 once/sent-twice-at-once load/shuffled",
		spoil: claimed(func(p process, scope, print string) (*claim, *record, error) {
			if found, err := p.look(scope); found != nil || err != nil {
				return nil, found, err
			}
			time.Sleep(gap)
			defer p.lock()()
			return p.take(scope, print), nil, nil
		})},
	{name: "lock-per-process", about: "responses are shared, but an instance does not see what runs on the other", brief: true,
		fails: "once/instances-concurrent load/shuffled",
		spoil: func(s *server) {
			s.claim = func(scope, print string) (*claim, *record, error) {
				if found, err := s.store.look(scope); found != nil || err != nil {
					return nil, found, err
				}
				return s.store.claim(s.name+scope, print)
			}
			s.commit = func(c *claim, _ *http.Request, a *response, made []payment) error {
				time.Sleep(gap)
				return s.store.commit(&claim{strings.TrimPrefix(c.scope, s.name), c.record}, a, made)
			}
		}},
	{name: "store-per-process", about: "each instance has records of its own",
		fails: "once/instances-repeat once/instances-concurrent load/shuffled",
		spoil: func(s *server) {
			s.scopeOf = func(user, method, path, key string) string { return s.name + scope(user, method, path, key) }
		}},
	{name: "unlocked-before-stored", about: "the claim is freed, and then the response is stored",
		fails: `once/concurrent once/instances-concurrent once/http2 once/client-leaves once/sent-twice-at-once
			inflight/answer inflight/once inflight/then-replay load/shuffled`,
		spoil: all(waits, ends(func(p process, c *claim, _ *http.Request, a *response) {
			p.free(c)
			time.Sleep(gap)
			_ = p.commit(newClaim(c.scope, c.print), a, nil)
		}))},
	{name: "forgets-soon", about: "a response is kept until nothing has been asked or answered for 1.9 seconds",
		fails: "once/repeat-later",
		spoil: func(s *server) {
			var mu sync.Mutex
			var last string // the scope of the last response that was stored
			at := time.Now()
			touch := func() { // no timer, which a busy machine may run too late
				mu.Lock()
				defer mu.Unlock()
				if time.Since(at) >= 1900*time.Millisecond {
					s.store.forget(last)
				}
				at = time.Now()
			}
			s.in = func(*http.Request) { touch() }
			s.out = func(*http.Request, *response) {
				mu.Lock()
				defer mu.Unlock()
				at = time.Now()
			}
			s.commit = func(c *claim, _ *http.Request, a *response, made []payment) error {
				mu.Lock()
				defer mu.Unlock()
				last, at = c.scope, time.Now()
				return s.store.commit(c, a, made)
			}
		}},
	{name: "expect-unprotected", about: "a request with Expect: 100-continue runs under a fresh key", fails: "once/expect-continue",
		spoil: unkeyed(func(r *http.Request) bool { return hasKey(r) && r.Header.Get("Expect") != "" })},
	{name: "chunked-unprotected", about: "a chunked request runs under a fresh key", fails: "once/chunked",
		spoil: unkeyed(func(r *http.Request) bool { return hasKey(r) && r.ContentLength < 0 })},
	{name: "http2-unprotected", about: "a request over HTTP/2 runs under a fresh key", fails: "once/http2",
		spoil: unkeyed(func(r *http.Request) bool { return hasKey(r) && r.ProtoMajor == 2 })},
	{name: "disconnect-frees", about: "a client that leaves ends the claim, although the payment is made", brief: true,
		fails: "once/client-leaves", spoil: unstored(true, hasLeft)},
	{name: "disconnect-locks", about: "a client that leaves ends the request, and the key stays locked",
		fails: "once/client-leaves-answered", spoil: unstored(false, hasLeft), flags: locks},
	{name: "cut-body-runs", about: "a request whose body is cut off runs with what has come", fails: "once/request-cut",
		spoil: requests(func(r *http.Request) { r.Body = lenient{r.Body} })},
	{name: "cut-body-locks", about: "a request whose body is cut off does not run, and keeps its key", fails: "once/request-cut",
		spoil: func(s *server) {
			s.in = func(r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if key, bad := parseKey(r.Header); err != nil && bad == nil {
					_, _, _ = s.claim(scope(user(r), r.Method, r.URL.Path, key), s.printOf(r, body))
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
		}},
	{name: "lease-not-renewed", about: "the claim of a slow request runs out after 100 ms",
		fails: "once/client-leaves mismatch/in-flight inflight/answer inflight/once inflight/then-replay",
		spoil: claimed(func(p process, scope, print string) (*claim, *record, error) {
			mine, found, err := p.claim(scope, print)
			if mine != nil && strings.Contains(print, "slow=") { // another may take as long on a busy machine
				time.AfterFunc(gap, func() {
					defer p.lock()()
					if mine.response == nil && p.records[scope] == mine.record {
						delete(p.records, scope)
					}
				})
			}
			return mine, found, err
		})},
	{name: "deduped-by-body", about: "an equal body under another key gets the stored response", flags: locks,
		fails: "key/length-distinct key/value-case once/keys-differ errors/failed-answered",
		spoil: claimed(func(p process, scope, print string) (*claim, *record, error) {
			same := scope[:strings.LastIndex(scope, " ")] + print // but for the key
			if found, err := p.look(same); found != nil || err != nil {
				return nil, found, err
			}
			mine, found, err := p.claim(scope, print)
			if mine != nil {
				defer p.lock()()
				p.records[same] = mine.record
			}
			return mine, found, err
		})},
	{name: "duplicate-empty", about: "a duplicate of a running request waits, and gets an empty 200",
		fails: "once/concurrent once/instances-concurrent once/http2 inflight/answer load/shuffled",
		spoil: running(func(_ *http.Request, found *record) *response {
			<-found.ended
			return &response{Status: http.StatusOK}
		})},
}

// hasLeft reports whether the client has closed its connection.
func hasLeft(r *http.Request, _ *response) bool { return r.Context().Err() != nil }

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
