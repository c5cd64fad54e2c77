// Package ginonce protects the handlers of gin against double submission: it is package middleware of onceguard for
// gin.
//
//	once := ginonce.Idempotency(locker, keyfunc.Standard(ginonce.User(currentUser)), middleware.WithRequired())
//	router := gin.Default()
//	router.Use(authenticate)
//	router.POST("/payments", once, pay)
//
// Everything that [middleware.Idempotency] says of keys, stored responses, waiting and problems applies here too, and
// its options are the same. This package makes gin's responses visible to it. gin's own writer keeps the status to
// itself, and handlers answer on the gin context: middleware.Idempotency that is put around c.Next by hand stores a
// redirect as an empty 200, and cannot replay anything else.
//
// # Order
//
// gin runs middlewares in the order of registration. Put this one on the route, or on a group of routes with effects:
//
//	router := gin.New()
//	router.Use(gin.Logger())                          // sees the status and size that the client gets, of replays too
//	router.Use(gin.Recovery())                        // before once: a panic means that nobody knows what happened
//	router.Use(authenticate)                          // before once: a replay is for somebody who may have it
//	router.POST("/payments", once, renderErrors, pay) // what writes a part of the response comes after once
//
// Why in this order:
//
//   - Recovery comes before: a panic reaches this middleware first, which leaves the key to run out, and then goes on
//     to Recovery. A Recovery behind it would make a 500 of the panic, a response like any other: it frees the key, and
//     a retry runs at once.
//   - What renders the errors in c.Errors comes behind. What is written outside of this middleware is not stored, and
//     c.Errors is empty for a replay. A handler that calls c.Error and leaves the response to others has not answered:
//     if nobody behind this middleware has either, the outcome is unknown, as after [middleware.Execution.Unknown]. An
//     error with a status of its own, as by c.AbortWithError or c.Bind, is an answer: that status, without a body.
//   - A middleware behind this one that replaces c.Request passes on its changes to what comes behind it, and not to
//     what comes before: there c.Request is again the one that was there.
//
// # In the handler
//
// The run is in the request's context. c itself has it only with gin.Engine.ContextWithFallback:
//
//	run := middleware.FromContext(c.Request.Context())
//
// The context goes on when the client disconnects, so that the response can be stored for its retry. So does c.Stream:
// its channel of CloseNotify fires when that context is done, not when the client leaves.
//
// gin writes the header late: c.Status and c.Redirect write nothing by themselves. In a transaction of a journal
// ([middleware.WithJournal]) call c.Writer.WriteHeaderNow after them.
package ginonce

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Idempotency returns a gin middleware that lets each request take effect once. Parameters, options and panics are
// those of [middleware.Idempotency].
//
// If it answers a request itself, with a stored response or a problem, c is aborted, and no later handler runs. Its
// requests have the route's path, c.FullPath, as their Pattern. It may be registered for any number of routes, and is
// safe for concurrent use.
func Idempotency(l *lock.Locker, key keyfunc.Func, opts ...middleware.Option) gin.HandlerFunc {
	protected := middleware.Idempotency(l, key, opts...)(http.HandlerFunc(serveNext))
	return func(c *gin.Context) {
		x := &exchange{Context: c.Request.Context(), c: c, outer: outerWriter{ResponseWriter: c.Writer}}
		r := c.Request.WithContext(x)
		if path := c.FullPath(); path != "" {
			r.Pattern = path
		}
		protected.ServeHTTP(&x.outer, r)
		if !x.called {
			c.Abort()
		}
	}
}

// User is [keyfunc.User] for an id that an authentication middleware has put into the gin context:
//
//	ginonce.User(func(c *gin.Context) string { return c.GetString(gin.AuthUserKey) })
//
// It works with [Idempotency] of this package; elsewhere, and if fn returns "", it returns keyfunc.ErrNoUser. The id
// must be stable; do not use a session or an access token. fn must not keep c. User panics when fn is nil. The Func is
// safe for concurrent use if fn is.
func User(fn func(*gin.Context) string) keyfunc.Func {
	if fn == nil {
		panic("ginonce.User: fn is nil")
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
	c      *gin.Context
	outer  outerWriter
	called bool // the next handlers were
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
	x.called = true
	if w != http.ResponseWriter(&x.outer) {
		x.run(w, r)
		return
	}
	// The request passes unprotected. Its key or its fingerprint may have been looked for in the body.
	x.c.Request.Body = r.Body
	if request := x.c.Request; r.Context() != context.Context(x) { // WithShadow: it has an Execution
		x.c.Request = r
		defer func() { x.c.Request = request }()
	}
	x.c.Next()
}

// run runs the next handlers with what they write going to w.
func (x *exchange) run(w http.ResponseWriter, r *http.Request) {
	c, request, before := x.c, x.c.Request, len(x.c.Errors)
	inner := newWriter(w, r, x.outer.ResponseWriter)
	c.Writer, c.Request = inner, r
	defer func() { c.Writer, c.Request = x.outer.ResponseWriter, request }() // also for the Recovery outside
	c.Next()

	run := middleware.FromContext(r.Context())
	switch {
	case inner.Written():
		return
	case len(c.Errors) > before: // left to an outer middleware
		x.outer.open = true
		x.leaveUnknown(run, inner.status)
	case c.FullPath() == "" && !inner.set: // left to gin, which answers 404 or 405
		x.outer.open = true
		_ = run.Discard() // fails only after Keep or Unknown, which count more
	case r.Context().Done() == x.Done(): // WithShadow, whose runs end with the request: outer middlewares see what they saw
		x.outer.open = true
	}
	inner.writeStatus()
}

// leaveUnknown makes the outcome of a run unknown whose response is left to others. A handler that has said Keep must
// not run again: a tombstone is stored, as for any handler that answers on another writer.
func (x *exchange) leaveUnknown(run *middleware.Execution, status int) {
	if run.Discard() == nil { // neither Keep nor Unknown was called
		run.Unknown()
		return
	}
	x.outer.bypassed = true
	x.outer.ResponseWriter.WriteHeader(status)
}
