package echoonce_test

import (
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	"go.uber.org/goleak"

	"github.com/onceguard/onceguard/contrib/echoonce"
	"github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/keyfunc"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

var framework = adaptertest.Echo[echo.MiddlewareFunc]{
	Framework: adaptertest.Framework[echo.MiddlewareFunc]{
		Package:     "echoonce",
		New:         newRouter,
		Idempotency: echoonce.Idempotency,
		User: func(fn func(adaptertest.Context) string) keyfunc.Func {
			if fn == nil {
				return echoonce.User(nil)
			}
			return echoonce.User(func(c echo.Context) string { return fn(testContext{c}) })
		},
		Recover:    echomiddleware.Recover(),
		Handlers:   handlers(),
		NotFound:   "{\"message\":\"Not Found\"}\n",
		NotAllowed: "{\"message\":\"Method Not Allowed\"}\n",
		Recovered:  "{\"message\":\"Internal Server Error\"}\n",
		LineEnd:    "\n",
		LateStatus: http.StatusOK,
	},
	NewHTTPError:   func(status int, message string) error { return echo.NewHTTPError(status, message) },
	ContextTimeout: echomiddleware.ContextTimeout,
	Gzip:           echomiddleware.Gzip(),
	BodyLimit:      echomiddleware.BodyLimit("4B"),
}

// testContext is an echo.Context as the tests of all frameworks want it.
type testContext struct{ echo.Context }

func (c testContext) Writer() http.ResponseWriter { return c.Response() }
func (c testContext) Before(f func())             { c.Response().Before(f) }

// EarlyHints sends a 103, which echo takes for the final status.
func (c testContext) EarlyHints() error {
	c.Response().Header().Set("Link", "</style.css>; rel=preload")
	return c.NoContent(http.StatusEarlyHints)
}

func (c testContext) Hijack() (net.Conn, error) {
	conn, _, err := http.NewResponseController(c.Response()).Hijack()
	return conn, err
}

func (c testContext) Seen() adaptertest.Seen {
	return adaptertest.Seen{Status: c.Response().Status, Size: c.Response().Size, Written: c.Response().Committed}
}

func native(h adaptertest.Handler) echo.HandlerFunc {
	return func(c echo.Context) error { return h(testContext{c}) }
}

// router is an echo server.
type router struct{ *echo.Echo }

func newRouter() adaptertest.Router[echo.MiddlewareFunc] {
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
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
	r.HTTPErrorHandler = func(err error, c echo.Context) { f(err, testContext{c}) }
}

func (r router) LeaveErrors() { r.HTTPErrorHandler = func(error, echo.Context) {} }
