package middleware_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// canned is a Redis server without network and state: it answers each kind of command with prepared bytes, and allocates
// nothing. What is measured is then the work of this library and of go-redis.
type canned struct {
	claim    []byte       // the answer to SET
	refused  int          // so many Settles are answered with an error
	settling func()       // called before another is answered, if it is not nil
	lost     atomic.Bool  // renewals find another's claim
	taken    bool         // a Settle does
	lag      atomic.Int64 // how long each answer takes, a time.Duration
	renewed  atomic.Int64
	claimed  []byte // what the last SET wanted to write
	settled  []byte // what the last Settle wanted to write
	key      []byte // where
}

func (s *canned) options() *redis.Options {
	return &redis.Options{
		Addr: "127.0.0.1:1", Protocol: 2, DisableIdentity: true,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return &cannedConn{store: s}, nil },
	}
}

// locker returns one for this store, on a client of go-redis.
func (s *canned) locker(t testing.TB, opts ...lock.Option) *lock.Locker {
	t.Helper()
	client := redis.NewClient(s.options())
	t.Cleanup(func() { _ = client.Close() })
	return newLocker(t, client, append([]lock.Option{lock.WithOpTimeout(500 * time.Millisecond)}, opts...)...)
}

// inBubble is locker for a testing/synctest bubble.
func (s *canned) inBubble(t testing.TB) *lock.Locker {
	t.Helper()
	return newLocker(t, redistest.NewDirect(t, s.options()).Client, lock.WithOpTimeout(500*time.Millisecond))
}

// cannedConn is a connection to it. go-redis writes first and reads then; only for a subscription, which fails here, it
// does both at the same time.
type cannedConn struct {
	net.Conn // nil
	store    *canned
	mu       sync.Mutex
	in, out  []byte
	args     [][]byte
}

func (c *cannedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in = append(c.in, p...)
	for {
		n := c.command()
		if n == 0 {
			return len(p), nil
		}
		c.answer()
		c.in = c.in[:copy(c.in, c.in[n:])]
	}
}

// command finds the parts of the first command that has come whole, and returns its length, 0 if there is none.
func (c *cannedConn) command() int {
	rest := c.in
	c.args = c.args[:0]
	for n := c.number(&rest); n > 0; n-- {
		size := c.number(&rest)
		if size < 0 || len(rest) < size+2 {
			return 0
		}
		c.args = append(c.args, rest[:size])
		rest = rest[size+2:]
	}
	return len(c.in) - len(rest)
}

// number reads a line that is a number behind its first byte, -1 if it has not come yet.
func (c *cannedConn) number(rest *[]byte) int {
	end := bytes.IndexByte(*rest, '\n')
	if end < 0 {
		return -1
	}
	n := 0
	for _, digit := range (*rest)[1 : end-1] {
		n = 10*n + int(digit-'0')
	}
	*rest = (*rest)[end+1:]
	return n
}

func (c *cannedConn) answer() {
	if lag := c.store.lag.Load(); lag > 0 {
		time.Sleep(time.Duration(lag))
	}
	switch string(c.args[0]) {
	case "set":
		c.store.claimed = append(c.store.claimed[:0], c.args[2]...)
		c.out = append(c.out, c.store.claim...)
	case "evalsha": // Settle, or a renewal: the claim is ours
		settles := len(c.args) == 8
		switch {
		case settles && len(c.args[4]) == 0: // no Settle, but a look
			c.out = append(c.out, "-ERR refused\r\n"...)
			return
		case settles && c.store.refused > 0:
			c.store.refused--
			c.out = append(c.out, "-ERR refused\r\n"...)
			return
		case settles && c.store.taken:
			c.out = append(c.out, "$1\r\nx\r\n"...)
			return
		case settles:
			if c.store.settling != nil {
				c.store.settling()
			}
			c.store.key = append(c.store.key[:0], c.args[3]...)
			c.store.settled = append(c.store.settled[:0], c.args[5]...)
		case c.store.lost.Load():
			c.out = append(c.out, "$1\r\nx\r\n"...)
			return
		default:
			c.store.renewed.Add(1)
		}
		c.out = append(c.out, "$20\r\n"...)
		c.out = append(append(c.out, c.args[4]...), "\r\n"...)
	default: // hello
		c.out = append(c.out, "-ERR unknown command\r\n"...)
	}
}

func (c *cannedConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.out) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.out)
	c.out = c.out[:copy(c.out, c.out[n:])]
	return n, nil
}

func (*cannedConn) Close() error                     { return nil }
func (*cannedConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*cannedConn) SetDeadline(time.Time) error      { return nil }
func (*cannedConn) SetReadDeadline(time.Time) error  { return nil }
func (*cannedConn) SetWriteDeadline(time.Time) error { return nil }

// absent is the answer to a SET that has taken the key.
const absent = "$-1\r\n"

// bulk is a text as the server sends it.
func bulk(b []byte) []byte { return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(b), b) }

// counter is a protected handler with the network taken out on both sides. It is not for use by several goroutines.
type counter struct {
	store     canned
	locker    *lock.Locker
	bare      http.Handler
	protected http.Handler
	request   *http.Request
	sent      cannedBody
	body      []byte
	w         discarded
	note      [1 + fingerprintLen + 1]byte
	value     []byte // of about a record's length
}

func newCounter(t testing.TB, size int, opts ...middleware.Option) *counter {
	t.Helper()
	c := &counter{body: bytes.Repeat([]byte("x"), size), value: make([]byte, size+150)}
	c.store.claim = []byte(absent)
	c.locker = c.store.locker(t)
	response, piece := bytes.Repeat([]byte("y"), size), make([]byte, 4096)
	c.bare = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := r.Body.Read(piece); err != nil {
				break
			}
		}
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Location", "/payments/1")
		h.Set("X-Request-Id", "abc")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(response)
	})
	user := keyfunc.User(func(context.Context) string { return "user-1" })
	c.protected = middleware.Idempotency(c.locker, keyfunc.Standard(user), opts...)(c.bare)
	c.w = discarded{header: http.Header{}}
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://test/payments", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.RequestURI, r.ContentLength = "/payments", int64(size)
	r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`)
	r.Header.Set("Content-Type", "application/json")
	c.request = r
	return c
}

// prepare lets the store hold what the key holds in the state given, and sends one request to see that it does.
func (c *counter) prepare(t testing.TB, state string) {
	t.Helper()
	c.store.claim = []byte(absent)
	c.serve(c.protected)
	if c.w.status != http.StatusCreated {
		t.Fatalf("first: status %d", c.w.status)
	}
	want := http.StatusCreated
	switch state {
	case "replay":
		c.store.claim = bulk(c.store.settled)
	case "in flight":
		c.store.claim, want = bulk(c.store.claimed), http.StatusConflict
	case "mismatch":
		c.store.claim, want = bulk(c.store.settled), http.StatusUnprocessableEntity
		c.body[0] ^= 1
	}
	c.serve(c.protected)
	replayed := c.w.header.Get("Idempotent-Replayed") == "true"
	if c.w.status != want || replayed != (state == "replay") || want == http.StatusCreated && c.w.written != len(c.body) {
		t.Fatalf("%s: status %d, %d bytes, replayed %v", state, c.w.status, c.w.written, replayed)
	}
}

// serve sends the request once more.
func (c *counter) serve(h http.Handler) {
	c.sent.Reset(c.body)
	c.request.Body = &c.sent
	clear(c.w.header)
	c.w.written = 0
	h.ServeHTTP(&c.w, c.request)
}

// cannedKey is as long as the key of the request.
const cannedKey = "20:4:POST9:/payments6:user-136:8e03978e-40d5-43e8-bc93-6894a57f9324"

// serveByLocker asks the locker what the middleware asks it for one request.
func (c *counter) serveByLocker(t testing.TB) {
	claim, err := c.locker.Claim(context.Background(), cannedKey, c.note[:], 0)
	if err == nil && claim.State == lock.Granted {
		claim.Lease.AbandonAt(time.Now().Add(time.Minute))
		claim.Lease.AbandonAt(time.Time{})
		err = claim.Lease.Settle(context.Background(), c.value, 24*time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
}

type cannedBody struct{ bytes.Reader }

func (*cannedBody) Close() error { return nil }

// discarded is a ResponseWriter that keeps no body.
type discarded struct {
	header  http.Header
	status  int
	written int
}

func (d *discarded) Header() http.Header    { return d.header }
func (d *discarded) WriteHeader(status int) { d.status = status }
func (d *discarded) Write(p []byte) (int, error) {
	d.written += len(p)
	return len(p), nil
}
