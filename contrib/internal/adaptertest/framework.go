// Package adaptertest has what the tests of contrib/ginonce, contrib/echoonce and contrib/echo5once share: a table of handlers
// and of what is around them, and a comparison with the framework alone.
package adaptertest

import (
	"errors"
	"net/http"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// Context is what the tests need of a framework's context.
type Context interface {
	Request() *http.Request
	Writer() http.ResponseWriter
	String(status int, body string) error
	JSON(status int, value any) error
	NoContent(status int) error // if the status is a 1xx, at once
	Fail(status int) error      // an error that the framework answers with the status
	Seen() Seen
}

// Seen is what a logging middleware finds.
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

// Router is a framework. Use adds a middleware outside of the routes that are added later, Add one around the handler.
type Router interface {
	http.Handler
	Use(m Middleware)
	Add(method, path string, h Handler, inside ...Middleware)
	HandleErrors(func(err error, c Context)) // in place of the framework, if that answers errors
}

// Framework is what a package of contrib adapts.
type Framework struct {
	New         func() Router
	Idempotency func(*lock.Locker, keyfunc.Func, ...middleware.Option) Middleware
	Recover     Middleware
	Limit       Middleware         // of 4 bytes for a body
	Gzip        Middleware         // of echo
	Ways        map[string]Handler // to answer that only this framework has
	Rows        map[string]Row     // that only this framework has

	NotFound, NotAllowed, Recovered string // the framework's own answers
	LineEnd                         string // of JSON
	LateStatus                      int    // that the client gets if the handler answers 201 after a 103
}

// ErrNoCover is a handler's error.
var ErrNoCover = errors.New("no cover")

// Pay is a handler that answers.
func Pay(c Context) error { return c.String(201, "paid") }

// Fail is a handler that leaves its error to others.
func Fail(Context) error { return ErrNoCover }

// EarlyHints sends a 103, which the frameworks take for the final status.
func EarlyHints(c Context) error {
	c.Writer().Header().Set("Link", "</style.css>; rel=preload")
	return c.NoContent(103)
}

// Render is a middleware that answers errors.
func Render(next Handler) Handler {
	return func(c Context) error {
		if err := next(c); err != nil {
			return c.String(402, err.Error())
		}
		return nil
	}
}
