package adaptertest

import (
	"net"
	"net/http"
	"testing"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Context is what the tests need of a framework's context.
type Context interface {
	Request() *http.Request
	SetRequest(r *http.Request)
	Writer() http.ResponseWriter
	String(status int, body string) error
	JSON(status int, value any) error
	NoContent(status int) error
	Param(name string) string
	Get(key string) any
	Set(key string, value any)
	SetCookie(cookie *http.Cookie)
	EarlyHints() error // sends a 103 with a Link
	Hijack() (net.Conn, error)
	Seen() Seen
}

// Seen is what a logging middleware outside finds.
type Seen struct {
	Status  int
	Size    int64
	Written bool
	Err     error // that the handler has returned
}

// Handler and Middleware are written once for all frameworks. A framework without errors of handlers reports them in
// another way, and next returns the last that was reported.
type (
	Handler    func(Context) error
	Middleware func(next Handler) Handler
)

// Router is a framework whose middlewares are of the type M.
type Router[M any] interface {
	http.Handler
	Use(M)                                           // before the routes that are added later
	Add(method, path string, h Handler, inside ...M) // the first middleware is the outermost
	Middleware(Middleware) M
	LeaveErrors() // the framework answers no error itself
}

// Framework is what a package of contrib adapts. Tests runs what all of them have in common.
type Framework[M any] struct {
	Package     string // as panics name it
	New         func() Router[M]
	Idempotency func(*lock.Locker, keyfunc.Func, ...middleware.Option) M
	User        func(func(Context) string) keyfunc.Func
	Recover     M
	Handlers    map[string]Handler // that answer in the ways that only this framework has

	NotFound, NotAllowed, Recovered string // the framework's own answers
	LineEnd                         string // of JSON
	LateStatus                      int    // that the client gets if the handler answers 201 after a 103
}

// Site is a Service whose routes are those of a Router.
type Site[M any] struct {
	*Service
	Router Router[M]
	Once   M         // the middleware under test
	Seen   chan Seen // by the middleware outside
}

// NewSite returns a Site without routes.
func (f Framework[M]) NewSite(t *testing.T, opts ...middleware.Option) *Site[M] {
	t.Helper()
	router := f.New()
	s := &Site[M]{Service: New(t, router), Router: router, Seen: make(chan Seen, 100)}
	s.Once = f.Idempotency(s.Locker, keyfunc.Standard(keyfunc.Anonymous()), append([]middleware.Option{s.Observer()}, opts...)...)
	s.Use(func(next Handler) Handler {
		return func(c Context) error {
			err := next(c)
			seen := c.Seen()
			seen.Err = err
			s.Seen <- seen
			return err
		}
	})
	return s
}

// Use adds a middleware outside.
func (s *Site[M]) Use(m Middleware) { s.Router.Use(s.Router.Middleware(m)) }

// Protect adds a route for POST /payments. h counts as a run.
func (s *Site[M]) Protect(h Handler, inside ...M) {
	counted := func(c Context) error {
		s.Runs.Add(1)
		return h(c)
	}
	s.Router.Add(http.MethodPost, "/payments", counted, append([]M{s.Once}, inside...)...)
}

// Pay sends a POST /payments.
func (s *Site[M]) Pay(key, body string) Answer {
	s.t.Helper()
	return s.Post("/payments", key, body)
}

// pay is a handler.
func pay(c Context) error { return c.String(http.StatusCreated, "paid") }
