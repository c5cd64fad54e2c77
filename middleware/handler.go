package middleware

import (
	"context"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
)

// Idempotency returns New(l, key, opts...).Handler: a middleware that lets each request take effect once.
func Idempotency(l *lock.Locker, key keyfunc.Func, opts ...Option) func(http.Handler) http.Handler {
	return newMiddleware("middleware.Idempotency", l, key, opts).Handler
}

// Handler returns a handler that lets each request take effect once, and calls next for the first. Requests with the
// same key are one request: the first runs next and its response is stored in Redis; the others get that response, with
// Idempotent-Replayed: true, or 409 while the first still runs.
//
// The key function derives a request's key. The middleware must be the first to read the body: otherwise two different
// requests could look alike. That is found, and gets 500, if the request has a Content-Length; without one, see [Event].Err.
//
// docs/reference.md has the steps of a request, and when its outcome is unknown:
// https://github.com/onceguard/onceguard/blob/main/docs/reference.md#steps-of-a-request
func (m *Middleware) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !m.methods[r.Method] {
			next.ServeHTTP(w, r)
			return
		}
		x := &exchange{m: m, w: w, r: r, ctx: r.Context()}
		if m.traceparent != nil {
			x.in.run.Traceparent = func() record.Trace { return record.ParseTrace(m.traceparent(x.ctx)) }
		}
		if m.shadow {
			x.serveShadow(next)
			return
		}
		x.serve(next)
	})
}

// serve answers the request. The numbers are the steps in docs/reference.md.
func (x *exchange) serve(next http.Handler) {
	m, in := x.m, &x.in
	if m.policy.Wait > 0 {
		in.run.AnswerBy = answerBy(x.ctx, time.Now())
	}
	way, refusal := m.read(x.w, x.r, in) // 1 to 3
	switch {
	case refusal != nil:
		x.refuse(refusal)
		return
	case way == nested:
		next.ServeHTTP(x.w, in.original(x.r))
		return
	case way == unprotected:
		x.pass(next, in.original(x.r), nil)
		return
	}
	result := m.guard.Begin(x.ctx, &in.run) // 4
	if result.Kind == run.InFlight {
		in.body = nil // many may be waiting
		result = m.guard.Wait(x.ctx, &in.run, result)
	}
	switch result.Kind {
	case run.Begun:
		x.handling = new(handling)
		x.protect(next) // 5 to 8
	case run.Unprotected:
		x.handling = new(handling)
		r := x.request(x.ctx)
		defer x.removeTemporaryFiles(r)
		x.pass(next, r, result.Err)
	default:
		x.answer(&result)
	}
}

// answerBy returns when the answer to a request that has just arrived must begin: before http.Server.WriteTimeout and the
// deadline of ctx, by a tenth of that time, 500 ms at most. It is zero if there is neither. See [WithWait].
func answerBy(ctx context.Context, arrived time.Time) (by time.Time) {
	limit := func(d time.Duration) {
		if t := arrived.Add(d - min(d/10, 500*time.Millisecond)); by.IsZero() || t.Before(by) {
			by = t
		}
	}
	if server, ok := ctx.Value(http.ServerContextKey).(*http.Server); ok && server.WriteTimeout > 0 {
		limit(server.WriteTimeout) // net/http counts from when it has read the header, which is just before
	}
	if outer, ok := ctx.Deadline(); ok {
		limit(outer.Sub(arrived))
	}
	return by
}

// pass runs the handler unprotected.
func (x *exchange) pass(next http.Handler, r *http.Request, err error) {
	start := time.Now()
	defer func() {
		x.in.run.Phases.Operation, x.pattern = run.PhaseSince(start), r.Pattern
		x.emit(Event{Outcome: Unprotected, Err: err})
	}()
	next.ServeHTTP(x.w, r)
}
