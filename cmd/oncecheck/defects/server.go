package main

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A server is one instance of a payments API that keeps the promise of the Idempotency-Key header. The fields that are
// functions are its steps, in their order. A defect replaces one of them.
type server struct {
	store process
	name  string // of the instance
	wait  bool   // a duplicate of a running request waits for its response; otherwise it gets 409

	in      func(r *http.Request) // sees each request first
	keyOf   func(http.Header) (string, error)
	scopeOf func(user, method, path, key string) string
	printOf func(r *http.Request, body []byte) string
	claim   func(scope, print string) (*claim, *record, error)
	answer  func(r *http.Request, found *record, print string) *response // to a request whose key has a record
	work    func(r *http.Request)
	pay     func(r *http.Request, body []byte) (*response, []payment)
	commit  func(c *claim, r *http.Request, answer *response, made []payment) error
	free    func(c *claim)
	out     func(r *http.Request, answer *response) // sees each answer last; the header is a copy, the body is not
}

func newServer(s *store, name string) *server {
	p := s.process()
	return &server{
		store: p, name: name,
		in: func(*http.Request) {}, out: func(*http.Request, *response) {},
		keyOf: parseKey, scopeOf: scope, work: work, pay: pay, free: s.free, answer: answer,
		printOf: func(r *http.Request, body []byte) string { return print(r.URL.RawQuery, body) },
		claim:   p.claim,
		commit:  func(c *claim, _ *http.Request, a *response, made []payment) error { return p.commit(c, a, made) },
	}
}

// scope encodes the user, the route and the key with their lengths, so that no two of them meet.
func scope(user, method, path, key string) string {
	return fmt.Sprintf("%q %q %q %q", user, method, path, key)
}

// print is the fingerprint of a request: its query and its body, without white space if it is JSON.
func print(query string, body []byte) string {
	var compact bytes.Buffer
	if json.Compact(&compact, body) == nil {
		body = compact.Bytes()
	}
	return fmt.Sprintf("%q %x", query, sha256.Sum256(body))
}

func user(r *http.Request) string { return r.Header.Get("Authorization") }

// ServeHTTP sends the answer, compressed if the client accepts that.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.in(r)
	found := s.serve(r)
	if found == nil {
		panic(http.ErrAbortHandler)
	}
	a := *found
	a.Header = found.Header.Clone()
	s.out(r, &a)
	for name, value := range map[string]string{
		"Cache-Control": "no-store", "Access-Control-Allow-Origin": "*", "Content-Length": strconv.Itoa(len(a.Body)),
		"Access-Control-Expose-Headers": "Idempotent-Replayed, Retry-After, Location",
	} {
		w.Header().Set(name, value)
	}
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		a.Body = zip(a.Body)
		w.Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Add("Vary", "Accept-Encoding")
	}
	if a.Trailer != nil || a.Status == http.StatusNoContent {
		w.Header().Del("Content-Length") // only a chunked response has trailers
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
	if a.Trailer != nil {
		_ = http.NewResponseController(w).Flush()
	}
	for name, values := range a.Trailer {
		w.Header()[http.TrailerPrefix+name] = values
	}
}

func zip(body []byte) []byte {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(body)
	_ = z.Close()
	return packed.Bytes()
}

// serve returns the answer of each route, or nil if the connection is to break.
func (s *server) serve(r *http.Request) *response {
	switch {
	case r.Method == http.MethodOptions:
		return &response{Status: http.StatusNoContent, Header: http.Header{
			"Access-Control-Allow-Methods": {"GET, POST, PUT, PATCH"},
			"Access-Control-Allow-Headers": {"Authorization, Content-Type, Idempotency-Key"},
		}}
	case user(r) == "":
		return problem(http.StatusUnauthorized, 0, "the Authorization header is missing")
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		text, _ := json.Marshal(s.store.of(user(r)))
		return &response{Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: text}
	}
	return s.once(r)
}

// once runs a request, or answers it with what an earlier one with the same key has left.
func (s *server) once(r *http.Request) *response {
	key, err := s.keyOf(r.Header)
	if err != nil {
		return problem(http.StatusBadRequest, 0, err.Error())
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return problem(http.StatusBadRequest, 0, "the body is incomplete")
	}
	scope, print := s.scopeOf(user(r), r.Method, r.URL.Path, key), s.printOf(r, body)
	mine, found, err := s.claim(scope, print)
	for err == nil && found != nil && found.response == nil && found.print == print && s.wait {
		select {
		case <-found.ended:
		case <-r.Context().Done():
			return nil
		}
		mine, found, err = s.claim(scope, print)
	}
	switch {
	case err != nil:
		return failed(err)
	case found != nil:
		return s.answer(r, found, print)
	}
	return s.run(r, mine, body)
}

func answer(_ *http.Request, found *record, print string) *response {
	switch {
	case found.print != print:
		return problem(http.StatusUnprocessableEntity, 0, "the key belongs to another request")
	case found.response == nil:
		return problem(http.StatusConflict, 1, "the first request with this key is still running")
	}
	a := *found.response
	a.Header = a.Header.Clone()
	a.Header.Del("Set-Cookie")
	a.Header.Set("Idempotent-Replayed", "true")
	return &a
}

func (s *server) run(r *http.Request, mine *claim, body []byte) *response {
	ended := false
	defer func() {
		if !ended { // the handler has panicked
			s.free(mine)
		}
	}()
	s.work(r)
	a, made := s.pay(r, body)
	ended = true
	if a.Status >= 500 && made == nil {
		s.free(mine) // nothing has happened: a repetition may try again
	} else if err := s.commit(mine, r, a, made); err != nil {
		s.free(mine)
		return failed(err)
	}
	takes(r, "late", 0)
	return a
}

// failed answers a request that the store has refused. Nothing has happened. A process that was killed does not answer.
func failed(err error) *response {
	if errors.Is(err, errKilled) {
		return nil
	}
	return problem(http.StatusServiceUnavailable, 1, "the store does not answer; nothing was done")
}

// work takes a little longer than the request asks for: no payment is instantaneous.
func work(r *http.Request) { takes(r, "slow", 10*time.Millisecond) }

// takes takes as long as the request asks for, at most 10 s, and the time beside it.
func takes(r *http.Request, parameter string, beside time.Duration) {
	d, _ := time.ParseDuration(r.URL.Query().Get(parameter))
	time.Sleep(beside + min(d, 10*time.Second))
}

// pay is the handler. It knows nothing of keys. It fails before the payment or after it if the request asks for that.
func pay(r *http.Request, body []byte) (*response, []payment) {
	var order struct{ Amount int }
	if err := json.Unmarshal(body, &order); err != nil || order.Amount <= 0 {
		return problem(http.StatusBadRequest, 0, "amount must be a number above 0"), nil
	}
	p := payment{ID: rand.Text(), User: user(r)}
	switch r.URL.Query().Get("fail") {
	case "before":
		return problem(http.StatusBadGateway, 0, "the bank does not answer"), nil
	case "after":
		return problem(http.StatusInternalServerError, 0, "the receipt cannot be printed"), []payment{p}
	case "panic":
		panic(http.ErrAbortHandler)
	}
	return receipt(p, order.Amount, r.URL.Query().Get("as")), []payment{p}
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
	case "trailer":
		a.Trailer = http.Header{"Checksum": {fmt.Sprintf("%x", sha256.Sum256(text))}}
	}
	return a
}

// problem returns a problem document (RFC 9457). retryAfter is in seconds, and 0 if it does not help to retry.
func problem(status, retryAfter int, title string) *response {
	text, _ := json.Marshal(map[string]any{
		"type":  "https://example.com/problems/" + strings.ReplaceAll(http.StatusText(status), " ", "-"),
		"title": title, "status": status,
	})
	a := &response{Status: status, Body: text, title: title, Header: http.Header{"Content-Type": {"application/problem+json"}}}
	if retryAfter > 0 {
		a.Header.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	return a
}
