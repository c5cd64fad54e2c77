package middleware_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// site is a protected handler behind a real HTTP server.
type site struct {
	t      *testing.T
	url    string
	locker *lock.Locker
	client *http.Client
	events chan middleware.Event
	runs   atomic.Int64 // how often the handler was called

	handler http.Handler // what the server serves

	outer func(http.Handler) http.Handler // what is mounted around the middleware
}

// both runs test on miniredis and on a real Redis.
func both(t *testing.T, test func(t *testing.T, b redistest.Backend)) {
	t.Helper()
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		test(t, b)
	})
}

// serve starts a site on the backend. Its keys are keyfunc.Standard with the name of HTTP Basic as the user.
func serve(t *testing.T, b redistest.Backend, h http.HandlerFunc, opts ...middleware.Option) *site {
	t.Helper()
	return serveOn(t, newLocker(t, b.Client(t)), h, opts...)
}

func serveOn(t *testing.T, locker *lock.Locker, h http.HandlerFunc, opts ...middleware.Option) *site {
	t.Helper()
	return serveKeyed(t, locker, keyfunc.Standard(keyfunc.BasicUser()), h, opts...)
}

func serveKeyed(t *testing.T, locker *lock.Locker, key keyfunc.Func, h http.HandlerFunc, opts ...middleware.Option) *site {
	t.Helper()
	s := &site{t: t, locker: locker, events: make(chan middleware.Event, 100)}
	s.outer = func(h http.Handler) http.Handler { return h }
	opts = append([]middleware.Option{middleware.WithObserver(func(_ context.Context, e middleware.Event) { s.events <- e })}, opts...)
	protected := middleware.Idempotency(locker, key, opts...)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		h(w, r)
	}))
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.outer(protected).ServeHTTP(w, r)
	})
	server := httptest.NewServer(s.handler)
	transport := &http.Transport{DisableCompression: true}
	s.url, s.client = server.URL, &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	return s
}

// newLocker returns a Locker with a long time for one operation, so that a busy machine does not fail a test.
// After a fault, Close may name claims that may return.
func newLocker(t testing.TB, client redis.UniversalClient, opts ...lock.Option) *lock.Locker {
	t.Helper()
	locker := lock.New(client, "test", append([]lock.Option{lock.WithOpTimeout(30 * time.Second)}, opts...)...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := locker.Close(ctx); err != nil && !errors.Is(err, lock.ErrUnreleased) {
			t.Errorf("Close: %v", err)
		}
	})
	return locker
}

// payment is the request that most tests send.
const payment = `{"amount":1250,"currency":"EUR"}`

// payOnce answers 201 and another body at each run.
func payOnce() http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/payments/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"run":`+string(rune('0'+n.Add(1)))+`}`)
	}
}

type edit func(*http.Request)

func key(k string) edit          { return func(r *http.Request) { r.Header.Set("Idempotency-Key", k) } }
func noKey(r *http.Request)      { r.Header.Del("Idempotency-Key") }
func user(name string) edit      { return func(r *http.Request) { r.SetBasicAuth(name, "") } }
func header(name, v string) edit { return func(r *http.Request) { r.Header[name] = []string{v} } }
func method(m string) edit       { return func(r *http.Request) { r.Method = m } }
func target(to string) edit {
	return func(r *http.Request) { r.URL.Path, r.URL.RawQuery, _ = strings.Cut(to, "?") }
}
func body(contentType, text string) edit {
	return func(r *http.Request) {
		r.Header.Set("Content-Type", contentType)
		r.Body, r.ContentLength, r.GetBody = io.NopCloser(strings.NewReader(text)), int64(len(text)), nil
	}
}

// answer is a response, read to its end.
type answer struct {
	status  int
	header  http.Header
	trailer http.Header
	body    string
}

func (a answer) replayed() bool { return a.header.Get("Idempotent-Replayed") == "true" }

// problem returns the problem's type without its prefix, empty when it is none.
func (a answer) problem() string {
	m := regexp.MustCompile(`"type":"urn:onceguard:problem:([a-z-]+)"`).FindStringSubmatch(a.body)
	if m == nil {
		return ""
	}
	return m[1]
}

// request returns ann's payment with the key "k1", as edited.
func (s *site) request(edits ...edit) *http.Request {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/payments", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range append([]edit{key(`"k1"`), user("ann"), body("application/json", payment)}, edits...) {
		e(r)
	}
	return r
}

// try sends the request. It may be called in any goroutine.
func (s *site) try(r *http.Request) (answer, error) {
	resp, err := s.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	a := answer{resp.StatusCode, resp.Header, resp.Trailer, string(b)}
	checkProblem(s.t, a)
	return a, err
}

func (s *site) send(edits ...edit) answer {
	s.t.Helper()
	a, err := s.try(s.request(edits...))
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// event returns the next event.
func (s *site) event() middleware.Event {
	s.t.Helper()
	select {
	case e := <-s.events:
		return e
	case <-time.After(20 * time.Second):
		s.t.Fatal("no event")
		panic("unreachable")
	}
}

// want checks an answer and the outcome of its Event.
func (s *site) want(a answer, status int, outcome middleware.Outcome) middleware.Event {
	s.t.Helper()
	e := s.event()
	if a.status != status || e.Outcome != outcome {
		s.t.Errorf("got %d (%s), %s, want %d, %s", a.status, strings.TrimSpace(a.body), e.Outcome, status, outcome)
	}
	if p, ok := problems()[a.problem()]; ok && !e.Shadow && e.Outcome != middleware.LeaseLost && !slices.Contains(p.outcomes, e.Outcome) {
		s.t.Errorf("%s: the outcome %s is not in the table", a.problem(), e.Outcome)
	}
	return e
}

func (s *site) wantRuns(n int64) {
	s.t.Helper()
	if got := s.runs.Load(); got != n {
		s.t.Errorf("the handler ran %d times, want %d", got, n)
	}
}

// awaitFree returns when no key is left.
func (s *site) awaitFree(b redistest.Backend) {
	s.t.Helper()
	eventually(s.t, "the key to be free", func() bool { return len(b.Keys(s.t)) == 0 })
}

// noEvent checks that there was no other event.
func (s *site) noEvent() {
	s.t.Helper()
	select {
	case e := <-s.events:
		s.t.Errorf("one event too many: %+v", e)
	default:
	}
}

// gate holds a handler until it is opened.
type gate struct{ entered, open chan struct{} }

func newGate() *gate { return &gate{make(chan struct{}, 100), make(chan struct{})} }

// pass is called in the handler. A gate that nobody opens lets the handler pass in the end, so that a test that has failed
// ends.
func (g *gate) pass() { g.passOr(nil) }

// passOr is pass, and also lets the handler pass when done is closed.
func (g *gate) passOr(done <-chan struct{}) {
	g.entered <- struct{}{}
	select {
	case <-g.open:
	case <-done:
	case <-time.After(time.Minute):
	}
}

// inBackground sends a request and returns when it is in the handler. The test fails if it is answered without that.
func (s *site) inBackground(g *gate, edits ...edit) (done <-chan answer) {
	s.t.Helper()
	answers := make(chan answer, 1)
	r := s.request(edits...)
	go func() {
		a, err := s.try(r)
		if err != nil {
			s.t.Error(err)
		}
		answers <- a
	}()
	select {
	case <-g.entered:
	case a := <-answers:
		if len(g.entered) == 0 {
			s.t.Fatalf("got %d (%s), and the handler did not run", a.status, strings.TrimSpace(a.body))
		}
		<-g.entered
		answers <- a
	case <-time.After(20 * time.Second):
		s.t.Fatal("the handler did not run")
	}
	return answers
}

// serveWaiting starts a site with a Locker of its own, as another process would have. Its duplicates wait for longer than
// any test takes. All requests have the key "k".
func serveWaiting(t *testing.T, client redis.UniversalClient, h http.HandlerFunc, opts ...middleware.Option) *site {
	t.Helper()
	// Looks that no message asks for come soon: a lease that runs out sends none.
	locker := newLocker(t, client, lock.WithRetry(lock.Retry{Max: 50 * time.Millisecond}))
	return serveWaitingOn(t, locker, h, opts...)
}

func serveWaitingOn(t *testing.T, locker *lock.Locker, h http.HandlerFunc, opts ...middleware.Option) *site {
	t.Helper()
	theKey := func(*http.Request) (string, error) { return "k", nil }
	return serveKeyed(t, locker, theKey, h, append([]middleware.Option{middleware.WithWait(30 * time.Second)}, opts...)...)
}

// begin sends a request and does not wait for its answer, which is empty if there is none.
func (s *site) begin(edits ...edit) <-chan answer {
	s.t.Helper()
	answers := make(chan answer, 1)
	r := s.request(edits...)
	go func() {
		a, _ := s.try(r)
		answers <- a
	}()
	return answers
}

// awaitWaiting returns when n lockers wait for the key. They have looked at it then, and a message will wake them.
func (s *site) awaitWaiting(b redistest.Backend, n int64) {
	s.t.Helper()
	client, key := b.Client(s.t), s.locker.StorageKey("k")
	eventually(s.t, "lockers to wait", func() bool {
		subscribed, err := client.PubSubNumSub(s.t.Context(), key).Result()
		return err == nil && subscribed[key] == n
	})
}

// wantRefused checks what a waiter was answered.
func (s *site) wantRefused(a answer, status int, outcome middleware.Outcome, problem string) middleware.Event {
	s.t.Helper()
	e := s.want(a, status, outcome)
	if a.problem() != problem || a.header.Get("Cache-Control") != "no-store" || a.replayed() {
		s.t.Errorf("problem %q, header %v, want %s, not to be stored, and no replay", a.problem(), a.header, problem)
	}
	return e
}

// wantEvents checks what the next events say, in any order.
func (s *site) wantEvents(want ...middleware.Outcome) {
	s.t.Helper()
	got := make([]middleware.Outcome, len(want))
	for i := range got {
		got[i] = s.event().Outcome
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Errorf("outcomes %q, want %q", got, want)
	}
}

// behind returns a handler that first waits for the gate to open, or for a test that has failed to end.
func behind(t *testing.T, g *gate, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		g.passOr(t.Context().Done())
		h(w, r)
	}
}

// eventually polls until done reports true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	poll, deadline := time.NewTicker(5*time.Millisecond), time.After(20*time.Second)
	defer poll.Stop()
	for !done() {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatal("waited in vain for ", what)
		}
	}
}

// master returns the n-th key.
func master(n byte) []byte { return bytes.Repeat([]byte{n}, 32) }

// rawOf returns what Redis has under the key of the event.
func rawOf(t *testing.T, b redistest.Backend, key string) []byte {
	t.Helper()
	raw, ok := b.Raw(t, key)
	if !ok {
		t.Fatalf("nothing under %s", key)
	}
	return []byte(raw)
}

// noRetry keeps net/http's Transport from repeating a request whose connection broke: it repeats one only if it can
// read the body again.
func noRetry(r *http.Request) { r.GetBody = nil }

func keysOf(h http.Header) (names []string) {
	for name := range h {
		names = append(names, name)
	}
	return names
}

// fixedKey is a key function: the storage key is a part of what is stored.
func fixedKey(*http.Request) (string, error) { return "k", nil }

var headerKey = keyfunc.Header("Idempotency-Key")

var scriptCommands = redistest.Named("EVAL", "EVALSHA")

const leaseTTL = 10 * time.Second // lock's default

// detail returns the detail of a problem.
func (a answer) detail(t *testing.T) string {
	t.Helper()
	var p middleware.Problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Errorf("%v in %s", err, a.body)
	}
	return p.Detail
}
