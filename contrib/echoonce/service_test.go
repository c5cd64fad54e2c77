package echoonce_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/onceguard/onceguard/contrib/echoonce"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// service is an echo server behind a real HTTP server.
type service struct {
	t      *testing.T
	echo   *echo.Echo
	once   echo.MiddlewareFunc
	redis  *miniredis.Miniredis
	server *httptest.Server
	events chan middleware.Event
	runs   atomic.Int64 // of handlers made by counted
	away   atomic.Bool  // Redis cannot be reached by new connections
	seen   chan seen    // by the middleware outside
}

// seen is what a logging middleware outside finds in c.Response().
type seen struct {
	status    int
	size      int64
	committed bool
	err       error
}

// newService returns a service without routes.
func newService(t *testing.T, opts ...middleware.Option) *service {
	t.Helper()
	s := &service{t: t, echo: echo.New(), redis: miniredis.RunT(t), events: make(chan middleware.Event, 100), seen: make(chan seen, 100)}
	client := redis.NewClient(&redis.Options{Addr: s.redis.Addr(), ContextTimeoutEnabled: true, Dialer: s.dial})
	locker := lock.New(client, "test")
	opts = append([]middleware.Option{
		middleware.WithObserver(func(_ context.Context, e middleware.Event) { s.events <- e }),
	}, opts...)
	s.once = echoonce.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()), opts...)
	s.server = httptest.NewUnstartedServer(s.echo)
	s.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.server.Start()
	t.Cleanup(func() {
		s.server.Close()
		_ = locker.Close(context.WithoutCancel(t.Context()))
		_ = client.Close()
	})
	s.echo.Logger.SetOutput(io.Discard)
	s.echo.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := next(c)
			s.seen <- seen{c.Response().Status, c.Response().Size, c.Response().Committed, err}
			return err
		}
	})
	return s
}

// dial fails once Redis is away. A test must not close Redis for that: another process may be given its port at once.
func (s *service) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if s.away.Load() {
		return nil, errors.New("redis is away")
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// counted counts the runs of h.
func (s *service) counted(h echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		s.runs.Add(1)
		return h(c)
	}
}

type answer struct {
	early  []int // the 1xx statuses before it
	status int
	header http.Header
	body   string
	err    error
}

// post sends a request with the key to the path.
func (s *service) post(path, key, body string) answer {
	s.t.Helper()
	return s.send(http.MethodPost, path, key, body)
}

func (s *service) send(method, path, key, body string) (a answer) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.server.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.GetBody = nil // so that the Transport does not retry
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	r.Header.Set("Content-Type", "application/json")
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(status int, _ textproto.MIMEHeader) error {
			a.early = append(a.early, status)
			return nil
		},
	}))
	client := s.server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	return answer{a.early, res.StatusCode, res.Header, string(content), err}
}

func (a answer) replayed() bool { return a.header.Get("Idempotent-Replayed") == "true" }

// want checks an answer, and the Event of its request.
func (s *service) want(a answer, status int, body string, outcome middleware.Outcome) middleware.Event {
	s.t.Helper()
	if a.err != nil {
		s.t.Fatal(a.err) // there may be no Event to wait for
	}
	if a.status != status || a.body != body && body != "*" {
		s.t.Errorf("got %d %q, want %d %q", a.status, a.body, status, body)
	}
	return s.wantEvent(outcome)
}

func (s *service) wantEvent(outcome middleware.Outcome) middleware.Event {
	s.t.Helper()
	e := <-s.events
	if e.Outcome != outcome {
		s.t.Errorf("outcome %s (%v), want %s", e.Outcome, e.Err, outcome)
	}
	if a := len(s.events); a > 0 {
		s.t.Errorf("%d more events", a)
	}
	return e
}

func (s *service) wantRuns(n int64) {
	s.t.Helper()
	if got := s.runs.Load(); got != n {
		s.t.Errorf("the handler ran %d times, want %d", got, n)
	}
}
