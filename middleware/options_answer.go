package middleware

import (
	"net/http"
	"strings"

	"github.com/onceguard/onceguard/internal/option"
	"github.com/onceguard/onceguard/internal/problem"
	"github.com/onceguard/onceguard/keyfunc"
)

// Options returns one option that applies opts in their order. It is for a set of options that several services share: an
// option that follows it overrides what the set says. By default there is no set. Options panics when one of opts is nil.
func Options(opts ...Option) Option {
	for i, opt := range opts {
		option.Check(opt != nil, "middleware.Options: option %d is nil", i+1)
	}
	return func(o *options) {
		for _, opt := range opts {
			opt(o)
		}
	}
}

// WithProblem replaces the function that writes the problem responses. The default writes application/problem+json (RFC
// 9457), or a small HTML page in a shopper's words for a client that prefers HTML. That page has no script, and a
// Content-Security-Policy of its own. It links back to the page in Referer, if that is on the same host.
//
// Retry-After, X-Should-Retry, Cache-Control and Link are set before f is called. If f writes another status, the Event
// still has the Problem's: change a status with [WithProblemStatus]. f is called concurrently. WithProblem panics when f
// is nil.
func WithProblem(f func(http.ResponseWriter, *http.Request, Problem)) Option {
	option.Check(f != nil, "middleware.WithProblem: f is nil")
	return func(o *options) { o.writeProblem = f }
}

// WithProblemStatus answers the problems of one type with another status, such as key-reused with 409 in place of 422.
// name is a type in the table of docs/reference.md, without "urn:onceguard:problem:". The defaults are in that table.
// [Problem], its HTML page and the [Event] have the new status. Retry-After and X-Should-Retry do not change.
//
// Clients decide by the status what to do next. Many repeat a 429 or a 503 by themselves, so give such a status only to
// a problem after which a retry may succeed. Package onceclient obeys X-Should-Retry, whatever the status is.
//
// The option may be given for several types. WithProblemStatus panics when there is no such type, or when status is not
// between 400 and 599.
func WithProblemStatus(name string, status int) Option {
	option.Check(problem.IsType(name), "middleware.WithProblemStatus: there is no problem of the type %q", name)
	option.Check(400 <= status && status <= 599, "middleware.WithProblemStatus: %d is not between 400 and 599", status)
	return func(o *options) {
		if o.statuses == nil {
			o.statuses = map[string]int{}
		}
		o.statuses[problem.TypePrefix+name] = status
	}
}

// WithKeyEcho sends the client's key back in the response header name, such as Idempotency-Key, so that clients and logs
// can match a response to its request. By default no response contains the key.
//
// part returns the client's part of the key, such as keyfunc.Header("Idempotency-Key") with [keyfunc.Standard]. Its
// result is echoed in what the handler sends, in replays and in problems. It is always that of the request which is
// answered: it is not stored, and a replay never has that of another request. A key that is missing or malformed, or has
// characters other than 0x20-0x7E, is not echoed. What an outer middleware answers by itself has no echo, nor has a
// request whose method is not protected, or one in shadow ([WithShadow]).
//
// The echo is set before the handler runs, which may change it. part is called after the key function, under the same
// rules. It is called concurrently. WithKeyEcho panics when name is not the name of a header field, or part is nil.
func WithKeyEcho(name string, part keyfunc.Func) Option {
	name = option.FieldName("middleware.WithKeyEcho", name)
	option.Check(part != nil, "middleware.WithKeyEcho: part is nil")
	return func(o *options) { o.echoName, o.echoPart = name, part }
}

// WithReplayHeader sets the name of the header that replays have, with the value true. The default is
// Idempotent-Replayed. Clients that know the default, such as package onceclient, no longer see that a response is a
// replay. WithReplayHeader panics when name is not the name of a header field.
func WithReplayHeader(name string) Option {
	name = option.FieldName("middleware.WithReplayHeader", name)
	return func(o *options) { o.replayHeader = name }
}

// echo sets the echo of the request's key, if there is one.
func (o *options) echo(w http.ResponseWriter, r *http.Request) {
	key, err := o.echoPart(r)
	isSendable := !strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' })
	if err == nil && key != "" && isSendable {
		w.Header()[o.echoName] = []string{key}
	}
}
