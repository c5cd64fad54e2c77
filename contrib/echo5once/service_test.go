package echo5once_test

import (
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"
	"go.uber.org/goleak"

	"github.com/onceguard/onceguard/contrib/echo5once"
	"github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/keyfunc"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

var framework = adaptertest.Echo[echo.MiddlewareFunc]{
	Framework: adaptertest.Framework[echo.MiddlewareFunc]{
		Package:     "echo5once",
		New:         newRouter,
		Idempotency: echo5once.Idempotency,
		User: func(fn func(adaptertest.Context) string) keyfunc.Func {
			if fn == nil {
				return echo5once.User(nil)
			}
			return echo5once.User(func(c *echo.Context) string { return fn(testContext{c}) })
		},
		Recover:    echomiddleware.Recover(),
		Handlers:   handlers(),
		NotFound:   "{\"message\":\"Not Found\"}\n",
		NotAllowed: "{\"message\":\"Method Not Allowed\"}\n",
		Recovered:  "{\"message\":\"Internal Server Error\"}\n",
		LineEnd:    "\n",
		LateStatus: http.StatusCreated,
	},
	NewHTTPError:   func(status int, message string) error { return echo.NewHTTPError(status, message) },
	ContextTimeout: echomiddleware.ContextTimeout,
	Gzip:           echomiddleware.Gzip(),
	BodyLimit:      echomiddleware.BodyLimit(4),
}

// testContext is an *echo.Context as the tests of all frameworks want it.
type testContext struct{ *echo.Context }

func (c testContext) Writer() http.ResponseWriter { return c.Response() }
func (c testContext) Error(err error)             { c.Echo().HTTPErrorHandler(c.Context, err) }
func (c testContext) Before(f func())             { c.response().Before(f) }

// response returns echo's own response.
func (c testContext) response() *echo.Response {
	response, err := echo.UnwrapResponse(c.Response())
	if err != nil {
		panic(err)
	}
	return response
}

func (c testContext) EarlyHints() error {
	c.Response().Header().Set("Link", "</style.css>; rel=preload")
	return c.NoContent(http.StatusEarlyHints)
}

func (c testContext) Hijack() (net.Conn, error) {
	conn, _, err := http.NewResponseController(c.Response()).Hijack()
	return conn, err
}

func (c testContext) Seen() adaptertest.Seen {
	response := c.response()
	return adaptertest.Seen{Status: response.Status, Size: response.Size, Written: response.Committed}
}

func native(h adaptertest.Handler) echo.HandlerFunc {
	return func(c *echo.Context) error { return h(testContext{c}) }
}

// router is an echo server.
type router struct{ *echo.Echo }

func newRouter() adaptertest.Router[echo.MiddlewareFunc] {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	return router{e}
}

func (r router) Use(m echo.MiddlewareFunc) { r.Echo.Use(m) }

func (r router) Add(method, path string, h adaptertest.Handler, inside ...echo.MiddlewareFunc) {
	r.Echo.Add(method, path, native(h), inside...)
}

func (router) Middleware(m adaptertest.Middleware) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return native(m(func(c adaptertest.Context) error { return next(c.(testContext).Context) }))
	}
}

func (r router) HandleErrors(f func(error, adaptertest.Context)) {
	r.HTTPErrorHandler = func(c *echo.Context, err error) { f(err, testContext{c}) }
}

func (r router) LeaveErrors() { r.HTTPErrorHandler = func(*echo.Context, error) {} }
