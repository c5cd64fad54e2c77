// Package echoonce protects the handlers of echo v4 against double submission: it is package middleware of onceguard
// for echo. For echo v5 there is package echo5once.
//
//	once := echoonce.Idempotency(locker, keyfunc.Standard(echoonce.User(currentUser)), middleware.WithRequired())
//	e := echo.New()
//	e.Use(authenticate)
//	e.POST("/payments", pay, once)
//
// Everything that [middleware.Idempotency] says of keys, stored responses, waiting and problems applies here too, and
// its options are the same. This package makes echo's errors visible to it. A handler that returns an error has not
// answered yet: echo's HTTPErrorHandler does so when all middlewares have returned. middleware.Idempotency in
// echo.WrapMiddleware stores, and sends, an empty 200 in place of it.
//
// # Errors
//
// If the handler returns an error, this middleware calls the HTTPErrorHandler (Context.Error) at once, stores what it
// writes, and returns the same error, so that outer middlewares see it: those that log, or end a transaction. They, and
// echo itself, may call the HTTPErrorHandler again: like echo's own it must do nothing if Context.Response().Committed
// is set. A replay returns no error.
//
// A middleware that turns one error into another one, or answers it, comes behind this one: what is decided outside is
// not stored. If the HTTPErrorHandler writes nothing, the response is left to the outer middlewares, and the outcome is
// unknown, as after [middleware.Execution.Unknown]. All of this holds with [middleware.WithShadow] too, which otherwise
// changes no response: put such a middleware behind this one before you watch.
//
// # Order
//
// Put this middleware on the route, or on a group of routes with effects. From the outside to the inside:
//
//	e := echo.New()
//	e.Use(echomiddleware.RequestLogger()) // sees the status that the client gets, of replays too
//	e.Use(echomiddleware.Recover())       // outside: a panic means that nobody knows what happened
//	e.Use(authenticate)                   // outside: a replay is for somebody who may have it
//	e.POST("/payments", pay, once)
//
// Recover is outside: a panic reaches this middleware first, which leaves the key to run out, and then goes on to
// Recover. A Recover inside would make an error of it, and so a 500, a response like any other: it frees the key, and a
// retry runs at once.
//
// # In the handler
//
// The run is in the request's context:
//
//	run := middleware.FromContext(c.Request().Context())
//
// The context goes on when the client disconnects, so that the response can be stored for its retry. In the handler
// Context.Response() is another one than outside. The functions that outer middlewares have given to Before and After
// of theirs are called when the response goes out, for a replay too.
//
// A handler that answers after a transaction of a journal ([middleware.WithJournal]) was rolled back can do so in all
// ways but Context.NoContent, which echo drops because of what was written in the transaction: the response is 500
// then.
package echoonce

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Idempotency returns an echo middleware that lets each request take effect once. Parameters, options and panics are
// those of [middleware.Idempotency].
//
// If it answers a request itself, with a stored response or a problem, the next handler is not called, and no error is
// returned. Its requests have the route's path, Context.Path, as their Pattern. It may be registered for any number of
// routes, and is safe for concurrent use.
func Idempotency(l *lock.Locker, key keyfunc.Func, opts ...middleware.Option) echo.MiddlewareFunc {
	protected := middleware.Idempotency(l, key, opts...)(http.HandlerFunc(serveNext))
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			x := &exchange{Context: c.Request().Context(), c: c, next: next, outer: outerWriter{Response: c.Response()}}
			r := c.Request().WithContext(x)
			if path := c.Path(); path != "" {
				r.Pattern = path
			}
			protected.ServeHTTP(&x.outer, r)
			return x.err
		}
	}
}

// User is [keyfunc.User] for an id that an authentication middleware has put into the echo context:
//
//	echoonce.User(func(c echo.Context) string { id, _ := c.Get("account").(string); return id })
//
// It works with [Idempotency] of this package; elsewhere, and if fn returns "", it returns keyfunc.ErrNoUser. The id
// must be stable; do not use a session or an access token. fn must not keep c. User panics when fn is nil. The Func is
// safe for concurrent use if fn is.
func User(fn func(echo.Context) string) keyfunc.Func {
	if fn == nil {
		panic("echoonce.User: fn is nil")
	}
	return keyfunc.User(func(ctx context.Context) string {
		x, ok := ctx.Value(exchangeKey{}).(*exchange)
		if !ok {
			return ""
		}
		return fn(x.c)
	})
}

// exchange is one request. It is also the request's context, so that serveNext and User find it.
type exchange struct {
	context.Context
	c     echo.Context
	next  echo.HandlerFunc
	outer outerWriter
	err   error // of next
}

type exchangeKey struct{}

func (x *exchange) Value(key any) any {
	if _, ok := key.(exchangeKey); ok {
		return x
	}
	return x.Context.Value(key)
}

// serveNext is the http.Handler that is protected.
func serveNext(w http.ResponseWriter, r *http.Request) {
	x := r.Context().Value(exchangeKey{}).(*exchange)
	if w != http.ResponseWriter(&x.outer) {
		x.run(w, r)
		return
	}
	// The request passes unprotected. Its key or its fingerprint may have been looked for in the body.
	x.c.Request().Body = r.Body
	if request := x.c.Request(); r.Context() != context.Context(x) { // WithShadow: it has an Execution
		x.c.SetRequest(r)
		defer x.c.SetRequest(request)
	}
	x.err = x.next(x.c)
}

// run calls the next handler with what it writes going to w.
func (x *exchange) run(w http.ResponseWriter, r *http.Request) {
	c, request := x.c, x.c.Request()
	inner := newWriter(w, x.outer.Response, c.Echo())
	c.SetResponse(inner.response)
	c.SetRequest(r)
	defer func() { // also for the Recover outside
		c.SetResponse(x.outer.Response)
		c.SetRequest(request)
	}()
	if x.err = x.next(c); x.err == nil {
		inner.answerRolledBack()
		return
	}
	inner.forgetRolledBack()
	if inner.hasAnswered() {
		return
	}
	c.Error(x.err)
	if !inner.hasAnswered() {
		x.outer.open = true
		x.leaveUnknown(middleware.FromContext(r.Context()))
	}
}

// leaveUnknown makes the outcome of a run unknown whose response is left to others. A handler that has said Keep must
// not run again: a tombstone is stored, as for any handler that answers on another writer.
func (x *exchange) leaveUnknown(run *middleware.Execution) {
	if run.Discard() == nil { // neither Keep nor Unknown was called
		run.Unknown()
		return
	}
	x.outer.bypassed = true
}
