// Package adaptertest has what the tests of contrib/ginonce, contrib/echoonce and contrib/echo5once share.
package adaptertest

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
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Service is a framework behind a real HTTP server, with a Redis of its own.
type Service struct {
	t      *testing.T
	Redis  *miniredis.Miniredis
	Locker *lock.Locker
	Server *httptest.Server
	Events chan middleware.Event // of the middlewares with the option Observer
	Runs   atomic.Int64          // counted by the framework's handlers
	Away   atomic.Bool           // Redis cannot be reached by new connections
}

// New starts a Service, and stops it when the test ends.
func New(t *testing.T, framework http.Handler) *Service {
	t.Helper()
	s := &Service{t: t, Redis: miniredis.RunT(t), Events: make(chan middleware.Event, 100)}
	s.Locker = s.newLocker("test")
	s.Server = httptest.NewUnstartedServer(framework)
	s.Server.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Server.Start()
	t.Cleanup(s.Server.Close)
	return s
}

// Observer is the option that sends Events.
func (s *Service) Observer() middleware.Option {
	return middleware.WithObserver(func(_ context.Context, e middleware.Event) { s.Events <- e })
}

// OtherLocker returns another Locker on the same Redis, in a namespace of its own.
func (s *Service) OtherLocker() *lock.Locker { return s.newLocker("other") }

func (s *Service) newLocker(namespace string) *lock.Locker {
	client := redis.NewClient(&redis.Options{Addr: s.Redis.Addr(), ContextTimeoutEnabled: true, Dialer: s.dial})
	locker := lock.New(client, namespace)
	s.t.Cleanup(func() {
		_ = locker.Close(context.WithoutCancel(s.t.Context()))
		_ = client.Close()
	})
	return locker
}

// dial fails once Away is set. A test must not close Redis for that: another process may be given its port at once.
func (s *Service) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if s.Away.Load() {
		return nil, errors.New("redis does not answer")
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// Answer is a response, or the error of a request that got none.
type Answer struct {
	Early  []int // the 1xx statuses before it
	Status int
	Header http.Header
	Body   string
	Err    error
}

// Replayed reports whether the response is a stored one.
func (a Answer) Replayed() bool { return a.Header.Get("Idempotent-Replayed") == "true" }

// Post sends a POST with the key, or without one if it is empty.
func (s *Service) Post(path, key, body string) Answer {
	s.t.Helper()
	return s.Send(http.MethodPost, path, key, body)
}

// Send sends a request.
func (s *Service) Send(method, path, key, body string) Answer {
	s.t.Helper()
	return s.SendBody(method, path, key, strings.NewReader(body))
}

// SendBody sends a request. It has a Content-Length if the body is a *strings.Reader.
func (s *Service) SendBody(method, path, key string, body io.Reader) (a Answer) {
	s.t.Helper()
	ctx := httptrace.WithClientTrace(s.t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(status int, _ textproto.MIMEHeader) error {
			a.Early = append(a.Early, status)
			return nil
		},
	})
	r, err := http.NewRequestWithContext(ctx, method, s.Server.URL+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	r.GetBody = nil // so that the Transport does not retry
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	r.Header.Set("Content-Type", "application/json")
	client := s.Server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Do(r)
	if err != nil {
		return Answer{Err: err}
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	return Answer{a.Early, res.StatusCode, res.Header, string(content), err}
}

// Want checks an answer, and the Event of its request. The body "*" is any.
func (s *Service) Want(a Answer, status int, body string, outcome middleware.Outcome) middleware.Event {
	s.t.Helper()
	if a.Err != nil {
		s.t.Fatal(a.Err) // there may be no Event to wait for
	}
	if a.Status != status || a.Body != body && body != "*" {
		s.t.Errorf("got %d %q, want %d %q", a.Status, a.Body, status, body)
	}
	return s.WantEvent(outcome)
}

// WantEvent waits for an Event and checks its outcome. There must be no other.
func (s *Service) WantEvent(outcome middleware.Outcome) middleware.Event {
	s.t.Helper()
	e := <-s.Events
	if e.Outcome != outcome {
		s.t.Errorf("outcome %s (%v), want %s", e.Outcome, e.Err, outcome)
	}
	if a := len(s.Events); a > 0 {
		s.t.Errorf("%d more events", a)
	}
	return e
}

// WantRuns checks how often the handlers have run.
func (s *Service) WantRuns(n int64) {
	s.t.Helper()
	if got := s.Runs.Load(); got != n {
		s.t.Errorf("the handler ran %d times, want %d", got, n)
	}
}

// WantLeftOpen checks that the Event says that nobody inside has answered, and not that the handler called Unknown.
func WantLeftOpen(t *testing.T, e middleware.Event) {
	t.Helper()
	if e.Err == nil || !strings.Contains(e.Err.Error(), "once, render") || strings.Contains(e.Err.Error(), "Unknown") || e.Status != 0 {
		t.Errorf("the Event has the status %d and the error %v, want one that names the right order", e.Status, e.Err)
	}
}

// WantSame checks that an answer is the one without the middleware, apart from the headers of both. It may remove some
// of them.
func WantSame(t *testing.T, what string, got, want Answer) {
	t.Helper()
	if got.Err != nil || want.Err != nil || got.Status != want.Status || got.Body != want.Body {
		t.Errorf("%s is %d %q, error %v; without this package it is %d %q, error %v",
			what, got.Status, got.Body, got.Err, want.Status, want.Body, want.Err)
	}
	for _, h := range []http.Header{got.Header, want.Header} {
		for _, own := range []string{"Date", "Idempotent-Replayed", "Content-Length"} {
			h.Del(own)
		}
	}
	if !reflect.DeepEqual(got.Header, want.Header) {
		t.Errorf("%s has the header %v; without this package %v", what, got.Header, want.Header)
	}
}
