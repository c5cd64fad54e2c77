package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// A script is what a handler does, step by step. It is played on a bare ResponseWriter and behind the middleware, and
// what the client gets and what the handler is told must be the same.
type script struct {
	name   string
	method string // POST if empty
	do     []step
}

// step does one thing, and returns what the handler was told.
type step func(*stage) string

// stage is where a script is played.
type stage struct {
	w  http.ResponseWriter
	rc *http.ResponseController
	at int // how much of the text was written

	connection []string // the Connection header of the response
	identity   bool     // Transfer-Encoding: identity
	begun      bool
}

// begin is called before what ends the header.
func (s *stage) begin() {
	if !s.begun {
		s.begun, s.connection = true, s.w.Header().Clone()["Connection"]
		s.identity = s.w.Header().Get("Transfer-Encoding") == "identity"
	}
}

// text is what scripts write, each from where it stopped: a byte at a wrong place shows.
var text = func() string {
	var b strings.Builder
	b.WriteString("<html>")
	for n := 0; b.Len() < 1<<16; n++ {
		b.WriteString(strconv.Itoa(n) + " ")
	}
	return b.String()
}()

func (s *stage) next(n int) string {
	s.begin()
	s.at += n
	return text[s.at-n : s.at]
}

func told[N int | int64](n N, err error) string { return fmt.Sprintf("%d, %s", n, class(err)) }

// class names what errors.Is can tell of an error.
func class(err error) string {
	for _, known := range []error{http.ErrContentLength, http.ErrBodyNotAllowed, http.ErrHijacked, http.ErrNotSupported} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return "failed"
	}
	return "ok"
}

func write(n int) step {
	return func(s *stage) string { return told(s.w.Write([]byte(s.next(n)))) }
}

func writeString(n int) step {
	return func(s *stage) string { return told(io.WriteString(s.w, s.next(n))) }
}

// copyFrom lets io.Copy find a ReadFrom if there is one: the source has no WriteTo.
func copyFrom(n int) step {
	return func(s *stage) string {
		if n == 0 {
			return told(io.Copy(s.w, strings.NewReader("")))
		}
		return told(io.Copy(s.w, struct{ io.Reader }{strings.NewReader(s.next(n))}))
	}
}

func status(code int) step {
	return func(s *stage) string {
		if code >= 200 {
			s.begin()
		}
		s.w.WriteHeader(code)
		return ""
	}
}

func flush(s *stage) string {
	s.begin()
	return class(s.rc.Flush())
}

func flusher(s *stage) string {
	s.begin()
	s.w.(http.Flusher).Flush()
	return ""
}

func set(name, value string) step { return raw(http.CanonicalHeaderKey(name), value) }

// raw sets a field under exactly this name. Without a value it is nil.
func raw(name string, values ...string) step {
	return func(s *stage) string {
		s.w.Header()[name] = slices.Clone(values) // a script may change them
		return ""
	}
}

func add(name, value string) step {
	return func(s *stage) string {
		s.w.Header().Add(name, value)
		return fmt.Sprintf("%q", s.w.Header()[name])
	}
}

func del(name string) step {
	return func(s *stage) string {
		s.w.Header().Del(name)
		return ""
	}
}

// mutate changes a value where it is.
func mutate(name, value string) step {
	return func(s *stage) string {
		if values := s.w.Header()[name]; len(values) > 0 {
			values[0] = value
		}
		return fmt.Sprintf("%q", s.w.Header()[name])
	}
}

// mutateLater changes a value where it is after then, without asking for the header again.
func mutateLater(name, value string, then step) step {
	return func(s *stage) string {
		values := s.w.Header()[name]
		said := then(s)
		values[0] = value
		return said
	}
}

func fullDuplex(s *stage) string { return class(s.rc.EnableFullDuplex()) }

func deadlines(d time.Duration) step {
	return func(s *stage) string {
		return class(s.rc.SetReadDeadline(time.Now().Add(d))) + ", " + class(s.rc.SetWriteDeadline(time.Now().Add(d)))
	}
}

func writeDeadlinePassed(s *stage) string {
	return class(s.rc.SetWriteDeadline(time.Now().Add(-time.Second)))
}

func pushable(s *stage) string {
	pusher, ok := s.w.(http.Pusher)
	if !ok {
		return class(http.ErrNotSupported)
	}
	return class(pusher.Push("/style.css", nil)) // Go's client forbids it
}

func abort(*stage) string { panic(http.ErrAbortHandler) }

// performance is what was seen of a script: by the client, and by the handler if it ran.
type performance struct {
	seen
	head    bool  // an answer to HEAD
	err     error // there is no response
	hints   []string
	status  int
	header  http.Header
	trailer http.Header
	body    string
	broken  bool // the body ended before its time
}

// seen is the server's side.
type seen struct {
	ran      bool
	told     []string
	panicked bool
	end      http.Header // as the handler left it
	hops     []string    // the Connection header that it has sent
	identity bool        // it has sent Transfer-Encoding: identity
	outcome  middleware.Outcome
}

func (p performance) String() string {
	return fmt.Sprintf("%d (%v)\n  hints %q\n  header %q\n  trailer %q\n  body %s, broken %v\n  handler %v: %q, panicked %v; %s",
		p.status, p.err, p.hints, p.header, p.trailer, outline(p.body), p.broken, p.ran, p.told, p.panicked, p.outcome)
}

func outline(body string) string {
	if len(body) > 64 {
		return fmt.Sprintf("%d: %q...%q", len(body), body[:32], body[len(body)-32:])
	}
	return strconv.Quote(body)
}

// theatre is a server that plays scripts, bare and protected.
type theatre struct {
	http2     bool
	url       string
	transport *http.Transport

	mu     sync.Mutex
	staged map[string]*play
}

// play is one script that is being played, one request at a time.
type play struct {
	script script
	seen   seen
	done   chan seen
}

// openTheatre starts a server for the protocol; see listen.
func openTheatre(t testing.TB, client redis.UniversalClient, protocol string) *theatre {
	t.Helper()
	th := &theatre{staged: map[string]*play{}}
	locker := lock.New(client, "test", lock.WithOpTimeout(30*time.Second))
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	th.http2 = strings.HasPrefix(protocol, "h2")
	th.url, th.transport = listen(t, protocol, th.handler(locker))
	return th
}

// handler plays the script that the request names, bare or protected.
func (th *theatre) handler(locker *lock.Locker) http.Handler {
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { th.find(r).perform(w) })
	protected := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()),
		middleware.WithMethods(http.MethodPost, http.MethodHead, http.MethodPut),
		middleware.WithStored(middleware.StoreAll),
		middleware.WithObserver(func(ctx context.Context, e middleware.Event) {
			ctx.Value(theatreKey{}).(*play).seen.outcome = e.Outcome
		}),
	)(bare)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := th.find(r)
		p.seen = seen{}
		defer func() { p.done <- p.seen }()
		if r.URL.Path == "/bare" {
			bare.ServeHTTP(w, r)
			return
		}
		protected.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), theatreKey{}, p)))
	})
}

type theatreKey struct{}

func (th *theatre) find(r *http.Request) *play {
	th.mu.Lock()
	defer th.mu.Unlock()
	return th.staged[r.Header.Get("Idempotency-Key")]
}

// perform is the handler.
func (p *play) perform(w http.ResponseWriter) {
	s := &stage{w: w, rc: http.NewResponseController(w)}
	p.seen.ran, p.seen.panicked = true, true
	defer func() { p.seen.end = w.Header().Clone() }()
	for _, do := range p.script.do {
		p.seen.told = append(p.seen.told, do(s))
	}
	s.begin()
	p.seen.panicked, p.seen.hops, p.seen.identity = false, s.connection, s.identity
}

// play plays the script: bare, protected, and protected once more. The key is one that the server has not seen.
func (th *theatre) play(t testing.TB, key string, sc script) (bare, first, again performance) {
	t.Helper()
	p, clear := th.stage(key, sc)
	defer clear()
	return th.attend(t, p, "/bare", key), th.attend(t, p, "/protected", key), th.attend(t, p, "/protected", key)
}

// stage makes the script the one that requests with this key play.
func (th *theatre) stage(key string, sc script) (p *play, clear func()) {
	p = &play{script: sc, done: make(chan seen, 1)}
	th.mu.Lock()
	defer th.mu.Unlock()
	th.staged[key] = p
	return p, func() {
		th.mu.Lock()
		defer th.mu.Unlock()
		delete(th.staged, key)
	}
}

// attend sends one request, over a connection of its own: a script may leave one in a state that the next must not
// meet.
func (th *theatre) attend(t testing.TB, p *play, path, key string) (got performance) {
	t.Helper()
	transport := th.transport.Clone()
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		got.hints = append(got.hints, fmt.Sprint(code, h))
		return nil
	}})
	method := p.script.method
	if method == "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(ctx, method, th.url+path, strings.NewReader(payment))
	if err != nil {
		t.Fatal(err)
	}
	got.head = method == http.MethodHead
	r.GetBody = nil // so that the Transport does not try again by itself
	r.Header.Set("Idempotency-Key", key)
	resp, err := transport.RoundTrip(r)
	if err == nil {
		var b []byte
		if resp.StatusCode != http.StatusSwitchingProtocols { // it has the connection for a body
			b, err = io.ReadAll(resp.Body)
		}
		resp.Body.Close()
		got.status, got.header, got.trailer = resp.StatusCode, resp.Header, resp.Trailer
		got.body, got.broken = string(b), err != nil
	} else {
		got.err = err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%s: no end of %s: %v", p.script.name, path, err)
	}
	got.seen = <-p.done
	return got
}
