// Package ginonce protects the handlers of gin against double submission: it is package middleware of onceguard for
// gin.
//
//	once := ginonce.Idempotency(locker, keyfunc.Standard(ginonce.User(currentUser)), middleware.WithRequired())
//	router := gin.Default()
//	router.Use(authenticate)
//	router.POST("/payments", once, pay)
//
// Keys, stored responses, waiting and problems are as in [middleware.Idempotency], and so are the options. This package
// makes gin's responses visible to it: gin's writer keeps the status to itself, and handlers answer on the gin context.
// Do not wrap c.Next in middleware.Idempotency by hand: that stores a redirect as an empty 200, and cannot replay
// anything else.
//
// # Order
//
// gin runs middlewares in the order of registration. Put this one on the route, or on a group of routes with effects:
//
//	router := gin.New()
//	router.Use(gin.Logger())                          // sees the status and size that the client gets, of replays too
//	router.Use(gin.Recovery())                        // before once: after a panic the outcome is unknown
//	router.Use(authenticate)                          // before once: only the right user gets a replay
//	router.POST("/payments", once, renderErrors, pay) // what writes a part of the response comes after once
//
// Why in this order:
//
//   - Recovery comes before: a panic first reaches this middleware, which leaves the key as after a crash, and then
//     goes on to Recovery. A Recovery after it would turn the panic into a 500 response, which by default frees the
//     key: a retry then runs at once.
//   - What renders the errors in c.Errors comes after: a response that is written outside of this middleware is not
//     stored, and c.Errors is empty for a replay. If a handler calls c.Error and no handler after this middleware
//     answers, the outcome is unknown, as after [middleware.Execution.Unknown], and the Event's Err says why. A handler
//     that knows better calls Discard or Keep. An error with a status, as by c.AbortWithError or c.Bind, is an answer:
//     that status, without a body.
//   - A later middleware may replace c.Request for the handlers after it. When they have returned, c.Request is the
//     earlier one again.
//
// # In the handler
//
// The request's context has the run:
//
//	run := middleware.FromContext(c.Request.Context())
//
// FromContext(c) returns nil without gin.Engine.ContextWithFallback, and the methods of a nil run do nothing.
//
// The context goes on when the client disconnects, so that the response can be stored for the retry. So does c.Stream:
// the channel of CloseNotify fires when that context is done, not when the client disconnects.
//
// gin writes the header late: c.Status and c.Redirect write nothing by themselves. In a transaction of a journal
// ([middleware.WithJournal]) call c.Writer.WriteHeaderNow after them.
package ginonce

import (
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/onceguard/onceguard/contrib/internal/adapter"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Idempotency returns a gin middleware that lets each request take effect once. Parameters, options and panics are
// those of [middleware.Idempotency].
//
// If the middleware answers a request itself, with a stored response or a problem, it aborts c, and no later handler
// runs. It sets the request's Pattern to the route's path, c.FullPath. It may be registered for any number of routes,
// and is safe for concurrent use.
func Idempotency(l *lock.Locker, key keyfunc.Func, opts ...middleware.Option) gin.HandlerFunc {
	protected := middleware.Idempotency(l, key, opts...)(http.HandlerFunc(adapter.Next[*gin.Context]))
	return func(c *gin.Context) {
		x := &call{c: c, outer: outerWriter{ResponseWriter: c.Writer}}
		adapter.Serve(protected, x, &x.outer, c.FullPath())
		x.outer.end()
		if !x.called {
			c.Abort()
		}
	}
}

// User is [keyfunc.User] for an id that an authentication middleware has put into the gin context:
//
//	ginonce.User(func(c *gin.Context) string { return c.GetString(gin.AuthUserKey) })
//
// It needs [Idempotency] of this package. Elsewhere, or if fn returns "", it returns keyfunc.ErrNoUser. The id must be
// stable: do not use a session or an access token. fn must not keep c. User panics if fn is nil. The Func is safe for
// concurrent use if fn is.
func User(fn func(*gin.Context) string) keyfunc.Func { return adapter.User("ginonce", fn) }

// errLeftOpen is in the Event of a run whose errors nobody inside has answered.
var errLeftOpen = errors.New("ginonce: the handlers added to c.Errors and wrote no response, and what is written " +
	"outside of this middleware cannot be stored: mount what renders c.Errors inside, as in " +
	"POST(path, once, render, handler)")

// call is one request.
type call struct {
	c      *gin.Context
	outer  outerWriter
	called bool // the next handlers were called
}

// Framework returns gin's context.
func (x *call) Framework() *gin.Context { return x.c }

// Request returns the context's request.
func (x *call) Request() *http.Request { return x.c.Request }

// SetRequest sets it.
func (x *call) SetRequest(r *http.Request) { x.c.Request = r }

// Pass calls the next handlers untouched.
func (x *call) Pass() {
	x.called = true
	x.c.Next()
}

// ReadError notices that an outer middleware that limits the body has answered 413 itself, as gin-contrib/size does.
func (x *call) ReadError(err error) error {
	if x.c.Writer.Written() && x.c.Writer.Status() == http.StatusRequestEntityTooLarge {
		x.outer.answered = true
		return adapter.TooLarge(err)
	}
	return err
}

// Run calls the next handlers with a gin.ResponseWriter that writes to w.
func (x *call) Run(w http.ResponseWriter, r *http.Request, shadow bool) {
	x.called = true
	c, request, before := x.c, x.c.Request, len(x.c.Errors)
	inner := &writer{
		under: w, outer: c.Writer, ctx: r.Context(), status: c.Writer.Status(), size: unwritten, shadow: shadow,
	}
	c.Writer, c.Request = inner, r
	defer func() { c.Writer, c.Request = x.outer.ResponseWriter, request }() // also for the Recovery outside
	c.Next()

	switch {
	case inner.Written():
		return
	case len(c.Errors) > before: // left to an outer middleware, with the status that it may use
		x.outer.Leave(errLeftOpen)
		x.outer.ResponseWriter.WriteHeader(inner.status)
		return
	case c.FullPath() == "" && !inner.set: // left to gin, which answers 404 or 405
		x.outer.statusOnly = true
		_ = middleware.FromContext(r.Context()).Discard() // fails only after Keep or Unknown, which count more
	case shadow: // outer middlewares see what they saw
		x.outer.statusOnly = true
	}
	inner.writeStatus()
}
