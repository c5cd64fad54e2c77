// Package middleware makes HTTP handlers safe against double submission. A user double-clicks, or a client loses its
// connection and sends again: the request takes effect once.
//
//	locker := lock.New(client, "payments-api")
//	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithRequired())
//	mux.Handle("POST /payments", once(pay))
//
// Requests with the same key are one request. The first one runs the handler, and its response is stored in Redis. A
// later one gets that response, with the header Idempotent-Replayed: true. docs/reference.md describes each step.
//
// # What to decide
//
//   - What the key is. [keyfunc.Standard] takes method, path, user and the header Idempotency-Key. A key without the
//     user in it would give one user's response to another.
//   - What happens after a failure. By default a 5xx is not stored, so a retry runs again; and a request whose outcome
//     is unknown, because the handler panicked or the process died, runs again once its lease has run out.
//     [WithAtMostOnce] runs neither again until the retention (24 h) has passed: use it for money.
//   - What a duplicate gets while the first request runs. By default 409; with [WithWait] it waits for the response.
//   - What happens while Redis does not answer. By default 503, and nothing runs; [WithFailOpen] runs the handler
//     unprotected.
//
// # In the handler
//
// [FromContext] returns the run. The handler may tell it what happened, if the status does not:
//
//	run := middleware.FromContext(r.Context())
//	switch err := charge(r.Context(), run.Key()); {
//	case errors.Is(err, errDeclined):
//		run.Keep() // store this response, whatever its status
//	case errors.Is(err, errNotSent):
//		_ = run.Discard() // nothing happened: a retry runs
//	case err != nil:
//		run.Unknown() // it may have happened: as after a crash
//	}
//
// # Goroutines that outlive the handler
//
// When the handler of a run returns, a goroutine that it has left behind is cut off. A request that passes unprotected
// (without a key, with [WithFailOpen], with [WithShadow]) is as without the middleware. In a run, from then on
//
//   - a call on the ResponseWriter returns an error. A Write or Flush that the client has not taken yet ends first, and
//     the rest of the response is sent after it. A hijacked connection stays the goroutine's.
//   - reading the body fails with [http.ErrBodyReadAfterClose]
//   - the request's context is done
//   - the methods of [Execution] have no effect, and a transaction that was not sealed cannot be committed
//
// The map of Header is not protected, and neither is that of net/http's own writer.
//
// # What clients and operators see
//
// A request that is refused gets a [Problem] (RFC 9457), with X-Should-Retry and, if a retry may succeed, Retry-After.
// [WithObserver] gets one [Event] for each request, with its [Outcome] and the errors of Redis. The page
// docs/reference.md has tables of problems, headers and outcomes, and the order of middlewares.
//
// The statuses 400, 409 and 422 are those of draft-ietf-httpapi-idempotency-key-header-07, section 2.7.
// Idempotent-Replayed, X-Should-Retry and the types of problems are not in that draft.
//
// # Words
//
// Claim, lease, hold, fence and waiter mean what they mean in package lock.
//
//   - A run is one call of the handler, under a key that its request has claimed.
//   - A duplicate is a request with a key that another request has claimed or settled.
//   - A record is a response as it is stored. A replay is a response made from a record.
//   - A tombstone is a record without the response: the request was processed or, if its outcome is unknown, begun. It
//     cannot be replayed.
//   - A fingerprint tells two requests with one key apart. Its kind names the rule that it was made by.
//   - The retention is how long a record is kept.
//   - The outcome of a run is unknown if it may or may not have taken effect.
//
// # Reading the code
//
// docs/reference.md has the steps of a request, and exchange.serve (handler.go) follows them. read (request.go) makes
// the key and the fingerprint. What happens to a key is not HTTP: that is internal/run, which answers with a Result.
// protect.go runs the handler, and product.go is its response as internal/run sees it. answer.go sends replays and
// problems. [WithShadow] is in shadow.go. In internal, capture is the ResponseWriter that buffers a response, response a
// response as a value and as the payload of a record, and problem the refusals.
package middleware
