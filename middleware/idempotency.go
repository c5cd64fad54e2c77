package middleware

import (
	"errors"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
)

// Idempotency returns a middleware that lets each request take effect once. Requests with the same key are one request:
// the first runs the handler and its response is stored in Redis; the others get that response, with
// Idempotent-Replayed: true, or 409 while the first still runs.
//
// key derives a request's key. [keyfunc.Standard] makes it of method, path, user and the Idempotency-Key header of
// draft-ietf-httpapi-idempotency-key-header-07, an Internet-Draft that expired on 2026-04-18 and has not become an RFC.
// The middleware must be the first to read the body: otherwise two different requests could look alike. That is found,
// and gets 500, if the request has a Content-Length; without one, see [Event].Err. The middleware may wrap any number of
// handlers, and is safe for concurrent use. Idempotency panics when l, key or an option is nil, and on
// options that contradict each other.
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
//     the cause [lock.ErrLost] when the lease is lost, unless there is a journal ([WithJournal]). It does not end when
//     the client disconnects, and ends when the handler has returned. A goroutine that the handler leaves behind can
//     neither read the body nor write after the handler has returned. If it is in a Write or a Flush at that time, the
//     response is stored at once and sent after that call.
//  6. The response is held back until it is stored: a client that has seen it can rely on its replay. A Flush, a
//     Hijack, or a body longer than [WithMaxResponse] sends it at once. From then on the key is never freed, and if the
//     response cannot be stored in full, a duplicate gets 409 response-not-stored. The same applies to a handler that
//     answers on a ResponseWriter other than the one it is given, such as a framework's own, if that writer has a
//     method Written() bool; the Event then has an error.
//  7. One round trip stores the response, or frees the key if the response is not to be stored ([WithStored]). This
//     does not depend on the client either. If Redis does not answer, the response is sent unchanged, the Event has the
//     error, and the background continues to store it ([lock.ErrPending]).
//  8. The response is sent, and the observer is called ([WithObserver]).
//
// A lease that has only run out does not matter in step 7, if the key is still free. But a run may find there that
// another request has taken its key. If no byte of its response was sent, it claims the key again, in case the other
// request has freed it. If the key is still taken, the client gets what the key holds, or 409, instead of this run's
// response, so that it does not get a response that differs from the stored one.
//
// The outcome is unknown if the handler panicked, returned without a response after its context was done, sent more or
// fewer bytes than its Content-Length, or called [Execution.Unknown]. If no byte was sent and [Execution.Keep] was not
// called, nothing is stored or freed: the client gets this run's response, if there is one, and the lease runs out.
// Until then a retry gets 409, including the one that net/http's own Transport sends at once. A later retry runs again,
// but with [WithAtMostOnce] not before the retention has passed. If a byte was sent or Keep was called, no retry runs
// before that: it gets 409 response-not-stored or, with WithAtMostOnce, in-flight and then outcome-unknown. The panic
// propagates unchanged.
func Idempotency(l *lock.Locker, key keyfunc.Func, opts ...Option) func(http.Handler) http.Handler {
	if l == nil {
		panic("middleware.Idempotency: the locker is nil")
	}
	if key == nil {
		panic("middleware.Idempotency: key is nil")
	}
	g := &guard{locker: l, keyFunc: key, options: newOptions("middleware.Idempotency", l, opts)}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !g.methods[r.Method] {
				next.ServeHTTP(w, r)
				return
			}
			c := g.newCall(w, r, next)
			if g.wait > 0 {
				c.timing.entered = time.Now()
			}
			if g.shadow {
				c.serveShadow()
				return
			}
			c.serve()
		})
	}
}

// serve answers the request. The numbers are the steps of [Idempotency].
func (c *call) serve() {
	way, refusal := c.findKey() // 1, 2
	switch {
	case way == nested:
		c.next.ServeHTTP(c.w, c.original())
		return
	case way == unprotected:
		c.pass(c.original(), nil)
		return
	case refusal != nil:
		c.respond(refusal)
		return
	}
	if refusal = c.readBody(); refusal != nil { // 3
		c.respond(refusal)
		return
	}
	claim, err := c.claim() // 4
	switch {
	case err != nil && c.mayFailOpen(err):
		c.passUnclaimed(err)
	case err != nil && !c.identity.expired && c.mayRunWithoutLease(err):
		c.running.claimErr = err
		c.run(nil) // the rest of 4, and 5 to 8
	case errors.Is(err, lock.ErrSettled), err != nil && c.mayRunWithoutLease(err):
		c.respond(c.lookInJournal(refuseClaim(err)))
	case err != nil:
		c.respond(refuseClaim(err))
	case claim.State == lock.Granted:
		c.run(claim.Lease) // the rest of 4, and 5 to 8
	default:
		c.identity.body.Free() // such a request needs only the fingerprint, and many may be waiting
		c.identity.body = nil
		c.respond(c.answerDuplicate(&claim))
	}
}

// pass runs the handler unprotected.
func (c *call) pass(r *http.Request, err error) {
	start := time.Now()
	defer func() {
		c.ranHandler(r, phaseSince(start))
		c.emit(Unprotected, 0, err)
	}()
	c.next.ServeHTTP(c.w, r)
}

// passUnclaimed runs the handler unprotected, with the body that was read, after the claim failed with err.
func (c *call) passUnclaimed(err error) {
	r := c.request(c.r.Context())
	defer c.removeTemporaryFiles(r)
	c.pass(r, err)
}
