// Package echo5once protects the handlers of echo v5 against double submission: it is package middleware of onceguard
// for echo. For echo v4 there is package echoonce.
//
//	once := echo5once.Idempotency(locker, keyfunc.Standard(echo5once.User(currentUser)), middleware.WithRequired())
//	e := echo.New()
//	e.Use(authenticate)
//	e.POST("/payments", pay, once)
//
// Keys, stored responses, waiting and problems are as in [middleware.Idempotency], and so are the options. This package
// makes echo's errors visible to it. When a handler returns an error, it has not answered yet: echo calls its
// HTTPErrorHandler after all middlewares have returned. So middleware.Idempotency in echo.WrapMiddleware would store
// and send an empty 200.
//
// # Errors
//
// If the handler returns an error, this middleware calls the HTTPErrorHandler at once and stores what it writes. Then
// it returns the same error to the outer middlewares, which may log it or end a transaction. They, and echo itself, may
// call the HTTPErrorHandler again. Like echo's own, it should do nothing if the response is Committed
// (echo.UnwrapResponse). What it writes nevertheless is dropped, unless an outer middleware has already put back an
// earlier response, as echo's Gzip does with a MinLength. A replay returns no error.
//
// If the handler returns the error of a deadline that echo's ContextTimeout has set outside, ContextTimeout answers 503.
// This middleware leaves that to it, and the outcome is unknown.
//
// Put a middleware that replaces or answers errors inside this one: what an outer middleware decides is not stored. If
// the HTTPErrorHandler writes nothing, an outer middleware or echo answers, and the outcome is unknown, as after
// [middleware.Execution.Unknown], and the Event's Err says why. A handler that knows better calls Discard or Keep. With
// [middleware.WithShadow], which otherwise changes no response, the HTTPErrorHandler is called at once too: move such a
// middleware inside before you watch.
//
// # Order
//
// Put this middleware on the route, or on a group of routes with effects. From the outside to the inside:
//
//	e := echo.New()
//	e.Use(echomiddleware.RequestLogger()) // sees the status that the client gets, of replays too
//	e.Use(echomiddleware.Recover())       // outside: after a panic the outcome is unknown
//	e.Use(authenticate)                   // outside: only the right user gets a replay
//	e.POST("/payments", pay, once)
//
// A panic first reaches this middleware, which leaves the key as after a crash, and then goes on to Recover. A Recover
// inside would turn the panic into an error, and so into a 500 response, which by default frees the key: a retry then
// runs at once.
//
// # In the handler
//
// The request's context has the run:
//
//	run := middleware.FromContext(c.Request().Context())
//
// The context goes on when the client disconnects, so that the response can be stored for the retry. Context.Response()
// in the handler is not the one outside, and no *echo.Response: use echo.UnwrapResponse. After a 1xx status the handler
// can still set the final one, which echo by itself drops. If outer middlewares have registered functions with Before and
// After there, they are called when the response is sent, and for a replay too.
//
// After a journal ([middleware.WithJournal]) has rolled back a transaction, the handler can still answer, but not by
// Context.NoContent: echo drops that status because of what the transaction had written, and the response is 500.
package echo5once

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/onceguard/onceguard/contrib/internal/adapter"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Idempotency returns an echo middleware that lets each request take effect once. Parameters, options and panics are
// those of [middleware.Idempotency].
//
// If the middleware answers a request itself, with a stored response or a problem, it does not call the next handler
// and returns no error. It sets the request's Pattern to the route's path, Context.Path. It may be registered for any
// number of routes, and is safe for concurrent use.
func Idempotency(l *lock.Locker, key keyfunc.Func, opts ...middleware.Option) echo.MiddlewareFunc {
	protected := middleware.Idempotency(l, key, opts...)(http.HandlerFunc(adapter.Next[*echo.Context]))
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			outer := &outerWriter{ResponseWriter: c.Response()}
			x := &call{adapter.EchoCall[*echo.Context]{
				Package: "echo5once", Context: c, Next: next, Outer: &outer.Open,
				Answer: func(err error) { c.Echo().HTTPErrorHandler(c, err) },
				Exit:   func() { c.SetResponse(outer.ResponseWriter) },
				Enter: func(w http.ResponseWriter) *adapter.EchoWriter {
					response := newResponse(w, outer, c.Logger())
					c.SetResponse(response)
					return response.inner
				},
			}}
			adapter.Serve(protected, x, outer, c.Path())
			if x.Ran && x.Err != nil && outer.Written() {
				c.SetResponse(adapter.Answered{ResponseWriter: outer.ResponseWriter})
			}
			return x.Err
		}
	}
}

// User is [keyfunc.User] for an id that an authentication middleware has put into the echo context:
//
//	echo5once.User(func(c *echo.Context) string { id, _ := c.Get("account").(string); return id })
//
// It needs [Idempotency] of this package. Elsewhere, or if fn returns "", it returns keyfunc.ErrNoUser. The id must be
// stable: do not use a session or an access token. fn must not keep c. User panics if fn is nil. The Func is safe for
// concurrent use if fn is.
func User(fn func(*echo.Context) string) keyfunc.Func { return adapter.User("echo5once", fn) }

// call is one request.
type call struct {
	adapter.EchoCall[*echo.Context]
}

// ReadError makes the error of a middleware such as echo's BodyLimit an http.MaxBytesError too.
func (x *call) ReadError(err error) error {
	if echo.StatusCode(err) == http.StatusRequestEntityTooLarge {
		return adapter.TooLarge(err)
	}
	return err
}
