// Package adapter has what contrib/ginonce, contrib/echoonce and contrib/echo5once share: the way of a request from a
// framework into middleware.Idempotency, and back to the framework's handlers.
package adapter

import (
	"context"
	"io"
	"net/http"

	"github.com/onceguard/onceguard/keyfunc"
)

// Call is one request of a framework whose contexts are of the type C. Its methods are called by the serving goroutine.
type Call[C any] interface {
	// Framework returns the framework's context.
	Framework() C
	// Request and SetRequest get and set the request of the framework's context.
	Request() *http.Request
	SetRequest(*http.Request)
	// Run calls the next handlers in a run: with the request r, and a response that writes to w. In shadow the context of r
	// ends with the request, and what is written to w is sent at once.
	Run(w http.ResponseWriter, r *http.Request, shadow bool)
	// Pass calls the next handlers untouched.
	Pass()
	// ReadError returns err, with which a Read of the request's body has failed, as the handlers are to get it. If the
	// framework answers it with 413, it has an *http.MaxBytesError in its chain, which the middleware looks for.
	ReadError(err error) error
}

// exchange is a Call in the request's context, where Next and User find it.
type exchange[C any] struct {
	context.Context
	call  Call[C]
	outer http.ResponseWriter
}

type exchangeKey[C any] struct{}

// Value returns x for its key, and otherwise what the context has.
func (x *exchange[C]) Value(key any) any {
	if _, ok := key.(exchangeKey[C]); ok {
		return x
	}
	return x.Context.Value(key)
}

// Serve serves the call with protected, which is middleware.Idempotency around Next[C]. outer is the response that the
// framework's outer middlewares have. pattern is the route's, or empty.
func Serve[C any](protected http.Handler, call Call[C], outer http.ResponseWriter, pattern string) {
	r := call.Request()
	r = r.WithContext(&exchange[C]{r.Context(), call, outer})
	if pattern != "" {
		r.Pattern = pattern
	}
	if r.Body != nil {
		r.Body = body{r.Body, call.ReadError}
	}
	protected.ServeHTTP(outer, r)
}

// body is a request's body whose errors go through Call.ReadError.
type body struct {
	io.ReadCloser
	readError func(error) error
}

// Read returns the errors of the body as the framework knows them.
func (b body) Read(p []byte) (n int, err error) {
	n, err = b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = b.readError(err)
	}
	return n, err
}

// TooLarge returns err with an *http.MaxBytesError in its chain.
func TooLarge(err error) error { return tooLarge{err} }

type tooLarge struct{ error }

// Unwrap returns the error, and the one that net/http has for a body that is too large.
func (e tooLarge) Unwrap() []error { return []error{e.error, &http.MaxBytesError{}} }

// Next is the handler that middleware.Idempotency protects: it calls the framework's next handlers.
func Next[C any](w http.ResponseWriter, r *http.Request) {
	x := r.Context().Value(exchangeKey[C]{}).(*exchange[C])
	if w != x.outer {
		shadow := r.Context().Done() == x.Done()
		x.call.Run(w, r, shadow)
		return
	}
	// The request passes unprotected. The middleware may have read the body for the key or the fingerprint.
	request := x.call.Request()
	request.Body = r.Body
	if r.Context() != context.Context(x) { // WithShadow: it has an Execution
		x.call.SetRequest(r)
		defer x.call.SetRequest(request)
	}
	x.call.Pass()
}

// User is keyfunc.User for an id that fn finds in the framework's context. Outside of Serve, or if fn returns "", it
// returns keyfunc.ErrNoUser. It panics with the name of the package if fn is nil.
func User[C any](name string, fn func(C) string) keyfunc.Func {
	if fn == nil {
		panic(name + ".User: fn is nil")
	}
	return keyfunc.User(func(ctx context.Context) string {
		x, ok := ctx.Value(exchangeKey[C]{}).(*exchange[C])
		if !ok {
			return ""
		}
		return fn(x.call.Framework())
	})
}

// Open is embedded in the writer that the middleware writes to.
type Open struct{ why error }

// Leave says that the handlers have left the response to an outer middleware or to the framework itself, and why. The
// middleware sends nothing then, and cannot store what the others answer.
func (o *Open) Leave(why error) { o.why = why }

// LeftOpen tells the middleware what Leave was told. It returns nil if Leave was not called.
func (o *Open) LeftOpen() error { return o.why }

// IsFinal reports whether a status is that of the response. Any other 1xx comes before it (RFC 9110 section 15.2). Both
// gin and echo take every status for the final one: after a 1xx they drop a handler's status, and net/http answers 200.
func IsFinal(status int) bool { return status >= 200 || status == http.StatusSwitchingProtocols }
