package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A server is one instance of a payments API that keeps the promise of the Idempotency-Key header. The fields that are
// functions are its steps, in their order. A defect replaces one of them.
type server struct {
	store process
	name  string // of the instance
	// A duplicate of a running request waits for its response; otherwise it gets 409.
	wait bool

	in      func(*call) // sees each request first
	keyOf   func(*call) (string, error)
	scopeOf func(*call) string
	printOf func(*call) string
	claim   func(*call) error // sets mine or found
	// Answers a request whose key has a record.
	answer func(*call) *response
	work   func(*call)
	pay    func(*call) // sets reply and made
	commit func(*call) error
	free   func(*call)
	// Sees each reply last; its header is a copy, its body is not.
	out func(*call)
}

// A call is a request on its way.
type call struct {
	*http.Request
	s                 *server
	body              []byte
	key, scope, print string
	mine, found       *record // one of them is nil
	reply             *response
	made              []payment
}

func newServer(p process, name string) *server {
	return &server{
		store: p, name: name, in: func(*call) {}, out: func(*call) {},
		keyOf: parseKey, scopeOf: scope, printOf: fingerprint, claim: p.claim, answer: answer,
		work: work, pay: pay, commit: p.commit, free: p.free,
	}
}

// scope encodes the user, the route and the key with their lengths, so that no two of them meet.
func scope(c *call) string {
	return fmt.Sprintf("%q %q %q %q", c.user(), c.Method, c.URL.Path, c.key)
}

// fingerprint is of the query and the body, without white space if it is JSON.
func fingerprint(c *call) string {
	var compact bytes.Buffer
	if json.Compact(&compact, c.body) != nil {
		compact.Reset()
		compact.Write(c.body)
	}
	return fmt.Sprintf("%q %x", c.URL.RawQuery, sha256.Sum256(compact.Bytes()))
}

func (c *call) user() string { return c.Header.Get("Authorization") }

// ServeHTTP sends the reply.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.store.killed, cancel)()
	c := &call{Request: r.WithContext(ctx), s: s}
	s.in(c)
	found := s.serve(c)
	if found == nil || s.store.killed.Err() != nil {
		panic(http.ErrAbortHandler)
	}
	a := *found
	a.Header, c.reply = found.Header.Clone(), &a
	s.out(c)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	for name, values := range a.Header {
		h[name] = values
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
}

// serve returns the answer of each route, or nil if the connection is to break.
func (s *server) serve(c *call) *response {
	switch {
	case c.user() == "":
		return problem(http.StatusUnauthorized, "the Authorization header is missing")
	case c.Method == http.MethodGet || c.Method == http.MethodHead:
		text, _ := json.Marshal(s.store.of(c.user()))
		return &response{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: text}
	}
	return s.once(c)
}

// once runs a request, or answers it with what an earlier one with the same key has left.
func (s *server) once(c *call) (_ *response) {
	var err error
	if c.key, err = s.keyOf(c); err != nil {
		return problem(http.StatusBadRequest, err.Error())
	}
	if c.body, err = io.ReadAll(c.Body); err != nil {
		return problem(http.StatusBadRequest, "the body is incomplete")
	}
	c.scope, c.print = s.scopeOf(c), s.printOf(c)
	for {
		switch err := s.claim(c); {
		case err != nil:
			return failed(err)
		case c.found == nil:
			return s.run(c)
		case !s.wait || c.found.response != nil || c.found.print != c.print:
			return s.answer(c)
		}
		select {
		case <-c.found.ended:
		case <-c.Context().Done():
			return nil
		}
	}
}

// answer answers a request whose key has a record.
func answer(c *call) *response {
	switch {
	case c.found.print != c.print:
		return problem(http.StatusUnprocessableEntity, "the key belongs to another request")
	case c.found.response == nil:
		return problem(http.StatusConflict, "the first request with this key is still running")
	}
	a := *c.found.response
	a.Header = a.Header.Clone()
	a.Header.Del("Set-Cookie")
	a.Header.Set("Idempotent-Replayed", "true")
	return &a
}

func (s *server) run(c *call) *response {
	ended := false
	defer func() {
		// Nothing has happened, or the handler has panicked: a repetition may try again.
		if !ended {
			s.free(c)
		}
	}()
	s.work(c)
	s.pay(c)
	if c.reply.Status >= 500 && c.made == nil {
		return c.reply
	}
	if err := s.commit(c); err != nil {
		return failed(err)
	}
	ended = true
	c.takes("late", 0)
	return c.reply
}

// failed answers a request that the store has refused. Nothing has happened. A process that was killed does not answer.
func failed(err error) *response {
	if errors.Is(err, errKilled) {
		return nil
	}
	return problem(http.StatusServiceUnavailable, "the store does not answer; nothing was done")
}

// work takes a little longer than the request asks for: no payment is instantaneous.
func work(c *call) { c.takes("slow", 10*time.Millisecond) }

// takes takes as long as the request asks for, at most 10 s, and the time beside it, unless the process is killed.
func (c *call) takes(parameter string, beside time.Duration) {
	d, _ := time.ParseDuration(c.URL.Query().Get(parameter))
	select {
	case <-time.After(beside + min(d, 10*time.Second)):
	case <-c.s.store.killed.Done():
	}
}

// pay is the handler. It knows nothing of keys. It fails before the payment or after it if the request asks for that.
func pay(c *call) {
	var order struct{ Amount int }
	if err := json.Unmarshal(c.body, &order); err != nil || order.Amount <= 0 {
		c.reply = problem(http.StatusBadRequest, "amount must be a number above 0")
		return
	}
	p := payment{rand.Text(), c.user()}
	c.made = []payment{p}
	switch c.URL.Query().Get("fail") {
	case "before":
		c.reply, c.made = problem(http.StatusBadGateway, "the bank does not answer"), nil
	case "after":
		c.reply = problem(http.StatusInternalServerError, "the receipt cannot be printed")
	case "panic":
		panic(http.ErrAbortHandler)
	default:
		c.reply = receipt(p, order.Amount, c.URL.Query().Get("as"))
	}
}

// receipt is the answer to a payment, of the kind that the client has asked for.
func receipt(p payment, amount int, kind string) *response {
	text, _ := json.Marshal(map[string]any{"id": p.ID, "amount": amount})
	a := &response{Status: http.StatusCreated, Body: text, Header: http.Header{
		"Content-Type": {"application/json"},
		"Etag":         {strconv.Quote(p.ID)},
		"Link":         {"</terms>; rel=terms-of-service", "</payments>; rel=collection"},
		"Location":     {"/payments/" + p.ID},
		"Set-Cookie":   {"seen=" + p.ID},
	}}
	switch kind {
	case "binary":
		a.Header.Set("Content-Type", "application/octet-stream")
		a.Body = append(text, bytes.Repeat([]byte{0, 0xff, 0xfe, '\r', '\n', 0x80, 0xc3}, 1000)...)
	case "large":
		a.Header.Set("Content-Type", "text/plain")
		a.Body = append(text, strings.Repeat("0123456789abcdef", 1<<16)...)
	case "empty":
		a.Body = nil
		a.Header.Del("Content-Type")
	case "other":
		a.Status = http.StatusSeeOther
	}
	return a
}

// problem returns a problem document (RFC 9457). A conflict, and a store that is down, are worth a retry.
func problem(status int, title string) *response {
	text, _ := json.Marshal(map[string]any{"type": "about:blank", "title": title, "status": status})
	h := http.Header{"Content-Type": {"application/problem+json"}}
	a := &response{Status: status, Body: text, title: title, Header: h}
	if status == http.StatusConflict || status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	return a
}

const keyHeader = "Idempotency-Key"

var (
	errNoKey  = errors.New("the Idempotency-Key header is missing")
	errBadKey = errors.New("the Idempotency-Key header must have one string of 1 to 255 printable ASCII characters")
)

// parseKey returns the key of a request.
func parseKey(c *call) (string, error) {
	switch fields := c.Header.Values(keyHeader); len(fields) {
	case 0:
		return "", errNoKey
	case 1:
		return parseField(fields[0])
	}
	return "", errBadKey
}

// inQuotes matches a structured-field string (RFC 9651, section 3.3.3) with parameters, which are ignored.
var inQuotes = regexp.MustCompile(`^ *"((?:[ !#-\[\]-~]|\\["\\])*)"(; *[a-z*][a-z0-9_.*-]*` +
	`(=("[ -!#-\[\]-~]*"|[!#-+./:<=>?A-Z^_|~a-z0-9-]+))?)* *$`)

// withoutQuotes matches the same without quotes.
var withoutQuotes = regexp.MustCompile(`^ *([!#-+\--:<-\[\]-~]*) *$`)

func parseField(field string) (string, error) {
	key := ""
	if found := inQuotes.FindStringSubmatch(field); found != nil {
		key = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(found[1])
	} else if found := withoutQuotes.FindStringSubmatch(field); found != nil {
		key = found[1]
	}
	if len(key) < 1 || len(key) > 255 {
		return "", errBadKey
	}
	return key, nil
}
