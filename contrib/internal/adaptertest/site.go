package adaptertest

import (
	"context"
	"io"

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
	server *httptest.Server
	Events chan middleware.Event
	seen   chan Seen // by the outermost middleware
	runs   int       // of the handlers that Protect has added
}

// NewSite returns a Site without routes, with options, with middlewares outside, the first of which is the outermost, and with
// a handler of errors. The end of the test stops it.
func (f Framework) NewSite(t *testing.T, around ...any) *Site {
	t.Helper()
	s := &Site{t: t, Router: f.New(), seen: make(chan Seen, 100), Events: make(chan middleware.Event, 100)}
	s.Router.Use(func(next Handler) Handler {
		return func(c Context) error {
			err := next(c)
			seen := c.Seen()
			seen.Err = err
			s.seen <- seen
			return err
		}
	})
	opts := []middleware.Option{
		middleware.WithObserver(func(_ context.Context, e middleware.Event) { s.Events <- e }),
	}
	for _, a := range around {
		switch a := a.(type) {
		case middleware.Option:
			opts = append(opts, a)
		case Middleware:
			s.Router.Use(a)
		case func(error, Context):
			s.Router.HandleErrors(a)
		}
	}
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), ContextTimeoutEnabled: true})
	locker := lock.New(client, "test")
	s.Once = f.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()), opts...)
	s.server = httptest.NewServer(s.Router)
	t.Cleanup(func() {
		s.server.Close()
		_ = locker.Close(context.WithoutCancel(t.Context()))
		_ = client.Close()
	})
	return s
}

const (
	route   = "/payments/:id" // of Protect
	givenUp = "Given-Up"      // in the header of a response that must not be sent
)

// Protect adds the route, for POST.
func (s *Site) Protect(h Handler) {
	counted := func(c Context) error {
		s.runs++
		return h(c)
	}
	s.Router.Use(s.unchanged)
	s.Router.Add(http.MethodPost, route, counted, s.Once)
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
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.server.URL+path, io.MultiReader(strings.NewReader(body)))
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	res, err := s.server.Client().Transport.RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	content, _ := io.ReadAll(res.Body)
	a.Status, a.Header, a.Body = res.StatusCode, res.Header, string(content)
	return a
}
