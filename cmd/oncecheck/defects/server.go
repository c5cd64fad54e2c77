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
	"slices"
	"strconv"
	"strings"
	"time"
)

// A server is one instance of a payments API that keeps the promise of the Idempotency-Key header. The fields that are
// functions are its steps. A defect replaces one of them.
type server struct {
	store *store
	epoch int    // of the store when the instance was started
	name  string // of the instance
	wait  bool   // a duplicate of a running request waits for its response; otherwise it gets 409

	keyOf   func(http.Header) (string, error)
	scopeOf func(r *http.Request, key string) string
	printOf func(r *http.Request, body []byte) string
	claim   func(scope, print string) (*claim, *record, error)
	work    func(r *http.Request)
	pay     func(r *http.Request, body []byte) (*response, []payment)
	commit  func(c *claim, r *http.Request, answer *response, made []payment) error
	free    func(c *claim)
	answer  func(w http.ResponseWriter, r *http.Request, found *record, print string)
	send    func(w http.ResponseWriter, answer *response)
	problem func(w http.ResponseWriter, status int, retryAfter int, title string)
}

func newServer(s *store, name string) *server {
	srv := &server{store: s, epoch: s.now(), name: name}
	srv.keyOf = parseKey
	srv.scopeOf = scope
	srv.printOf = print
	srv.claim = func(scope, print string) (*claim, *record, error) { return s.claim(srv.epoch, scope, print) }
	srv.work = work
	srv.pay = pay
	srv.commit = func(c *claim, _ *http.Request, answer *response, made []payment) error {
		return s.commit(c, answer, made...)
	}
	srv.free = s.free
	srv.answer = srv.answerFor
	srv.send = send
	srv.problem = problem
	return srv
}

// scope encodes the user, the route and the key with their lengths, so that no two of them meet.
func scope(r *http.Request, key string) string {
	return fmt.Sprintf("%q %q %q %q", user(r), r.Method, r.URL.Path, key)
}

// print is the fingerprint of a request: its query, its media type and its body, without white space if it is JSON.
func print(r *http.Request, body []byte) string {
	var compact bytes.Buffer
	if json.Compact(&compact, body) == nil {
		body = compact.Bytes()
	}
	sum := sha256.Sum256(body)
	return fmt.Sprintf("%q %q %x", r.URL.RawQuery, r.Header.Get("Content-Type"), sum)
}

func user(r *http.Request) string { return r.Header.Get("Authorization") }

// ServeHTTP serves every route of the server, compressed if the client accepts that.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		z := gzip.NewWriter(w)
		defer func() { _ = z.Close() }()
		w = gzipWriter{w, z}
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Access-Control-Expose-Headers", "Idempotent-Replayed, Retry-After, Location")
	switch {
	case r.Method == http.MethodOptions:
		w.Header().Set("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH")
		w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key")
		w.WriteHeader(http.StatusNoContent)
	case user(r) == "":
		w.Header().Set("WWW-Authenticate", "Bearer")
		s.problem(w, http.StatusUnauthorized, 0, "the Authorization header is missing")
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		_ = json.NewEncoder(w).Encode(s.store.of(user(r)))
	default:
		s.once(w, r)
	}
}

// once runs a request, or answers it with what an earlier one with the same key has left.
func (s *server) once(w http.ResponseWriter, r *http.Request) {
	key, err := s.keyOf(r.Header)
	if err != nil {
		s.problem(w, http.StatusBadRequest, 0, err.Error())
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<20))
	if err != nil {
		s.problem(w, http.StatusBadRequest, 0, "the body is incomplete or longer than 4 MiB")
		return
	}
	scope, print := s.scopeOf(r, key), s.printOf(r, body)
	mine, found, err := s.claim(scope, print)
	for err == nil && found != nil && found.response == nil && found.print == print && s.wait {
		select {
		case <-found.ended:
		case <-r.Context().Done():
			return
		}
		mine, found, err = s.claim(scope, print)
	}
	switch {
	case err != nil:
		s.failed(w, err)
	case found != nil:
		s.answer(w, r, found, print)
	default:
		s.run(w, r, mine, body)
	}
}

// answerFor answers a request whose key has a record.
func (s *server) answerFor(w http.ResponseWriter, _ *http.Request, found *record, print string) {
	switch {
	case found.print != print:
		s.problem(w, http.StatusUnprocessableEntity, 0, "the key belongs to another request")
	case found.response == nil:
		s.problem(w, http.StatusConflict, 1, "the first request with this key is still running")
	default:
		answer := *found.response
		answer.Header = answer.Header.Clone()
		answer.Header.Del("Set-Cookie")
		answer.Header.Set("Idempotent-Replayed", "true")
		s.send(w, &answer)
	}
}

func (s *server) run(w http.ResponseWriter, r *http.Request, mine *claim, body []byte) {
	ended := false
	defer func() {
		if !ended { // the handler has panicked
			s.free(mine)
		}
	}()
	s.work(r)
	answer, made := s.pay(r, body)
	ended = true
	if answer.Status >= 500 && made == nil {
		s.free(mine) // nothing has happened: a repetition may try again
	} else if err := s.commit(mine, r, answer, made); err != nil {
		s.free(mine)
		s.failed(w, err)
		return
	}
	linger(r)
	s.send(w, answer)
}

// failed answers a request that the store has refused. Nothing has happened. A process that was killed does not answer.
func (s *server) failed(w http.ResponseWriter, err error) {
	if errors.Is(err, errKilled) {
		panic(http.ErrAbortHandler)
	}
	s.problem(w, http.StatusServiceUnavailable, 1, "the store does not answer; nothing was done")
}

// work takes as long as the request asks for, at most 10 s, and a little longer: no payment is instantaneous.
func work(r *http.Request) {
	d, _ := time.ParseDuration(r.URL.Query().Get("slow"))
	time.Sleep(10*time.Millisecond + min(d, 10*time.Second))
}

// linger takes as long as the request asks for after the payment, at most 10 s.
func linger(r *http.Request) {
	d, _ := time.ParseDuration(r.URL.Query().Get("late"))
	time.Sleep(min(d, 10*time.Second))
}

// pay is the handler. It knows nothing of keys. It fails before the payment or after it if the request asks for that.
func pay(r *http.Request, body []byte) (*response, []payment) {
	var order struct{ Amount int }
	if err := json.Unmarshal(body, &order); err != nil || order.Amount <= 0 {
		return newProblem(http.StatusBadRequest, 0, "amount must be a number above 0"), nil
	}
	p := payment{ID: rand.Text(), User: user(r)}
	switch r.URL.Query().Get("fail") {
	case "before":
		return newProblem(http.StatusBadGateway, 0, "the bank does not answer"), nil
	case "after":
		return newProblem(http.StatusInternalServerError, 0, "the receipt cannot be printed"), []payment{p}
	case "panic":
		panic(http.ErrAbortHandler)
	}
	return receipt(p, order.Amount, r.URL.Query().Get("as")), []payment{p}
}

// receipt is the answer to a payment, of the kind that the client has asked for.
func receipt(p payment, amount int, kind string) *response {
	text, _ := json.Marshal(map[string]any{"id": p.ID, "amount": amount})
	answer := &response{Status: http.StatusCreated, Body: text, Header: http.Header{
		"Content-Type": {"application/json"},
		"Etag":         {strconv.Quote(p.ID)},
		"Link":         {"</terms>; rel=terms-of-service", "</payments>; rel=collection"},
		"Location":     {"/payments/" + p.ID},
		"Set-Cookie":   {"seen=" + p.ID},
	}}
	switch kind {
	case "binary":
		answer.Header.Set("Content-Type", "application/octet-stream")
		answer.Body = append(text, bytes.Repeat([]byte{0, 0xff, 0xfe, '\r', '\n', 0x80, 0xc3}, 1000)...)
	case "large":
		answer.Header.Set("Content-Type", "text/plain")
		answer.Body = append(text, strings.Repeat("0123456789abcdef", 1<<16)...)
	case "empty":
		answer.Body = nil
		answer.Header.Del("Content-Type")
	case "other":
		answer.Status = http.StatusSeeOther
	case "trailer":
		answer.Trailer = http.Header{"Checksum": {fmt.Sprintf("%x", sha256.Sum256(text))}}
	}
	return answer
}

func send(w http.ResponseWriter, answer *response) {
	for name, values := range answer.Header {
		w.Header()[name] = slices.Clone(values)
	}
	if answer.Trailer == nil {
		w.Header().Set("Content-Length", strconv.Itoa(len(answer.Body)))
	}
	w.WriteHeader(answer.Status)
	_, _ = w.Write(answer.Body)
	if answer.Trailer != nil {
		_ = http.NewResponseController(w).Flush() // only a chunked response has trailers
	}
	for name, values := range answer.Trailer {
		w.Header()[http.TrailerPrefix+name] = values
	}
}

// problem answers by a problem document (RFC 9457). retryAfter is in seconds, and 0 if it does not help to retry.
func problem(w http.ResponseWriter, status, retryAfter int, title string) {
	send(w, newProblem(status, retryAfter, title))
}

func newProblem(status, retryAfter int, title string) *response {
	text, _ := json.Marshal(map[string]any{
		"type":  "https://example.com/problems/" + strings.ReplaceAll(http.StatusText(status), " ", "-"),
		"title": title, "status": status,
	})
	answer := &response{Status: status, Body: text, Header: http.Header{
		"Content-Type": {"application/problem+json"}, "Cache-Control": {"no-store"},
	}}
	if retryAfter > 0 {
		answer.Header.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	return answer
}

// gzipWriter compresses what goes through it: what is stored is not compressed.
type gzipWriter struct {
	http.ResponseWriter
	z *gzip.Writer
}

// WriteHeader sends the header of a compressed response.
func (w gzipWriter) WriteHeader(status int) {
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Add("Vary", "Accept-Encoding")
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(status)
}

// Write compresses p.
func (w gzipWriter) Write(p []byte) (int, error) { return w.z.Write(p) }
