package echo5once_test

import (
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"

	"github.com/onceguard/onceguard/contrib/echo5once"
	test "github.com/onceguard/onceguard/contrib/internal/adaptertest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

var framework = test.Framework{
	New: newRouter,
	Idempotency: func(l *lock.Locker, key keyfunc.Func, opts ...middleware.Option) test.Middleware {
		return around(echo5once.Idempotency(l, key, opts...))
	},
	Recover:    around(echomiddleware.Recover()),
	Limit:      around(echomiddleware.BodyLimit(4)),
	Gzip:       around(echomiddleware.Gzip()),
	Ways:       ways(),
	NotFound:   "{\"message\":\"Not Found\"}\n",
	NotAllowed: "{\"message\":\"Method Not Allowed\"}\n",
	Recovered:  "{\"message\":\"Internal Server Error\"}\n",
	LineEnd:    "\n",
	LateStatus: http.StatusCreated,
}

// testContext is an echo.Context as the tests of all frameworks want it.
type testContext struct{ *echo.Context }

func (c testContext) Writer() http.ResponseWriter { return c.Response() }

func (c testContext) response() *echo.Response {
	response, _ := echo.UnwrapResponse(c.Response())
	return response
}

func (c testContext) Before(f func()) { c.response().Before(f) }

func (c testContext) Fail(status int) error { return echo.NewHTTPError(status, "failed") }

func (c testContext) Seen() test.Seen {
	r := c.response()
	return test.Seen{Status: r.Status, Size: r.Size, Written: r.Committed}
}

func native(h test.Handler) echo.HandlerFunc {
	return func(c *echo.Context) error { return h(testContext{c}) }
}

func generic(h echo.HandlerFunc) test.Handler {
	return func(c test.Context) error { return h(c.(testContext).Context) }
}

func around(m echo.MiddlewareFunc) test.Middleware {
	return func(next test.Handler) test.Handler { return generic(m(native(next))) }
}

func nativeAround(m test.Middleware) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc { return native(m(generic(next))) }
}

// router is an echo server.
type router struct{ *echo.Echo }

func newRouter() test.Router {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	return router{e}
}

func (r router) Use(m test.Middleware) { r.Echo.Use(nativeAround(m)) }

func (r router) Add(method, path string, h test.Handler, inside ...test.Middleware) {
	var around []echo.MiddlewareFunc
	for _, m := range inside {
		around = append(around, nativeAround(m))
	}
	r.Echo.Add(method, path, native(h), around...)
}

func (r router) HandleErrors(f func(error, test.Context)) {
	r.HTTPErrorHandler = func(c *echo.Context, err error) { f(err, testContext{c}) }
}
