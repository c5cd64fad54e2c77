package adaptertest

import (
	"context"
	"io"
	"log"

	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Site is a framework behind a real HTTP server, with a Redis of its own.
type Site struct {
	t      *testing.T
	Router Router
	Once   Middleware // the middleware under test
	Server *httptest.Server
	Events chan middleware.Event
	seen   chan seen // by the outermost middleware
	runs   int       // of the handlers that Protect has added
}

type seen struct {
	Seen
	err error // that the handler has returned
}

// NewSite returns a Site without routes. The end of the test stops it.
func (f Framework) NewSite(t *testing.T, opts ...middleware.Option) *Site {
	t.Helper()
	s := &Site{t: t, Router: f.New(), seen: make(chan seen, 100)}
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), ContextTimeoutEnabled: true})
	locker := lock.New(client, "test")
	s.Events = make(chan middleware.Event, 100)
	observe := middleware.WithObserver(func(_ context.Context, e middleware.Event) { s.Events <- e })
	s.Once = f.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()), append(opts, observe)...)
	s.Server = httptest.NewUnstartedServer(s.Router)
	s.Server.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Server.Start()
	t.Cleanup(func() {
		s.Server.Close()
		_ = locker.Close(context.WithoutCancel(t.Context()))
		_ = client.Close()
	})
	s.Router.Use(func(next Handler) Handler {
		return func(c Context) error {
			err := next(c)
			s.seen <- seen{c.Seen(), err}
			return err
		}
	})
	return s
}

// Protect adds the route POST /payments/:id.
func (s *Site) Protect(h Handler) {
	counted := func(c Context) error {
		s.runs++
		return h(c)
	}
	s.Router.Use(s.unchanged)
	s.Router.Add(http.MethodPost, "/payments/:id", counted, s.Once)
}

// unchanged checks that outer middlewares find their request again and, where they have no error to answer, their writer.
func (s *Site) unchanged(next Handler) Handler {
	return func(c Context) (err error) {
		r, w := c.Request(), c.Writer()
		defer func() { // also after a panic
			if c.Request() != r || err == nil && c.Writer() != w {
				s.t.Error("the context is not as it was")
			}
		}()
		return next(c)
	}
}

// Answer is a response.
type Answer struct {
	Early  []int // the 1xx statuses before it
	Status int
	Header http.Header
	Body   string
}

// Pay sends POST /payments/42.
func (s *Site) Pay(body string) Answer {
	s.t.Helper()
	return s.Post("/payments/42", "k", body)
}

// Post sends a request without a Content-Length, and without a key if that is empty.
func (s *Site) Post(path, key, body string) (a Answer) {
	s.t.Helper()
	ctx := httptrace.WithClientTrace(s.t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(status int, _ textproto.MIMEHeader) error {
			a.Early = append(a.Early, status)
			return nil
		},
	})
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.Server.URL+path, io.MultiReader(strings.NewReader(body)))
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	res, err := s.Server.Client().Transport.RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Error(err)
	}
	a.Status, a.Header, a.Body = res.StatusCode, res.Header, string(content)
	return a
}
