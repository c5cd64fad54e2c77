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
// The key function derives a request's key. [keyfunc.Standard] makes it of method, path, user and the Idempotency-Key
// header of draft-ietf-httpapi-idempotency-key-header-07, an Internet-Draft that expired on 2026-04-18 and has not become
// an RFC. The middleware must be the first to read the body: otherwise two different requests could look alike. That is
// found, and gets 500, if the request has a Content-Length; without one, see [Event].Err.
//
// What happens to a request:
//
//  1. A request whose method is not covered ([WithMethods]) passes untouched. So does a request without a key, unless a
//     key is required ([WithRequired]), and one that already runs under this key because the middleware is mounted
//     twice.
//  2. If the key is malformed, or missing though required, the client gets 400. If the user is missing, it gets 401.
//     Redis is not contacted, and only the key function may have read the body.
//  3. The whole body is read, and the request's fingerprint is made. It shows whether a key is used for two different
//     requests.
//  4. One round trip to Redis claims the key, or returns what it holds. A stored response is replayed. If the first
//     request is still running, the duplicate waits for it ([WithWait]) or gets 409. If its fingerprint differs, it
//     gets 422, and if its fingerprint is of another kind ([WithFingerprint]), 409 fingerprint-changed. A key that is too
//     old to run ([WithKeyAge]) is looked up and never claimed. A request that has claimed the key goes on to step 5.
//     Before that, a journal ([WithJournal]) is asked whether the request may run. With [WithAtMostOnce] the claim has a
//     hold. If Redis does not answer, the request gets 503, and nothing runs. There are two exceptions. With
//     [WithFailOpen] the handler runs unprotected. With a journal, and without WithAtMostOnce, the journal alone is asked.
//     It is also asked for the response to a duplicate, if Redis has none.
//  5. The handler runs, in this goroutine. Its context ends at an outer deadline and at [WithMaxDuration]. It ends with
//     the cause [lock.ErrLost] when the lease is lost, unless there is a journal. It does not end when the client
//     disconnects, and ends when the handler has returned. A goroutine that the handler leaves behind can neither read
//     the body nor write after the handler has returned. If it is in a Write or a Flush at that time, the response is
//     stored at once and sent after that call.
//  6. The response is buffered until it is stored: a client that has seen it can rely on its replay. A Flush, a
//     Hijack, or a body longer than [WithMaxResponse] sends it at once. From then on the key is never freed (but see
//     [WithoutServerErrors]), and if the response cannot be stored in full, a duplicate gets 409 response-not-stored. The
//     same applies to a handler that answers on a ResponseWriter other than the one it is given, such as a framework's own, if that writer has a
//     method Written() bool; the Event then has an error.
//  7. One round trip stores the response, or frees the key if the response is not to be stored ([WithStored]). This
//     does not depend on the client either. If Redis does not answer, the response is sent unchanged, the Event has the
//     error, and the background continues to store it ([lock.ErrPending]).
//  8. The response is sent, and the observer is called ([WithObserver]).
//
// A lease that has only run out does not matter in step 7, if the key is still free. But a run may find there that
// another request, or an operator, has taken its key. If no byte of its response was sent, it claims the key again, in case the other
// request has freed it. If the key is still taken, the client gets what the key holds, or a problem, instead of this run's
// response, so that it does not get a response that differs from the stored one.
//
// The outcome is unknown if the handler panicked, returned without a response after its context was done, sent more or
// fewer bytes than its Content-Length, or called [Execution.Unknown]. If no byte was sent and [Execution.Keep] was not
// called, nothing is stored or freed: the client gets this run's response, if there is one, and the lease runs out.
// Until then a retry gets 409, including the one that net/http's own Transport sends at once. A later retry runs again,
// but not with [WithAtMostOnce]. If a byte was sent or Keep was called, a retry never runs: it gets 409
// response-not-stored (with the outcome [NotReplayable] after Keep, and otherwise [OutcomeUnknown]) or, with
// [WithAtMostOnce], in-flight and then outcome-unknown. The panic propagates unchanged.
//
// Inside of the handler there may be another middleware, with another key. If that one refuses the request for now, with
// X-Should-Retry: true, and the handler then answers with a status of 400 or more, this response is not stored. The key is
// freed; with [WithAtMostOnce] or an intent journal the outcome is unknown, because the handler may have taken effect
// before. [Execution.Discard] and [Execution.Keep] count as always.
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

// serve answers the request. The numbers are the steps of [Middleware.Handler].
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
		x.handled = new(handled)
		x.protect(next) // 5 to 8
	case run.Unprotected:
		x.handled = new(handled)
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
