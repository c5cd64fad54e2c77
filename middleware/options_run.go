package middleware

import (
	"fmt"
	"time"
)

// WithAtMostOnce never runs a request again whose outcome is unknown: the handler panicked, the process died, the
// handler ran past [WithMaxDuration] without an answer, its response was broken or could not be stored, or it called
// [Execution.Unknown]. Use it for money. By default such a request runs again when the lease has run out.
//
// A retry of such a request is answered with 409 outcome-unknown until the retention is over; a person or another
// system has to find out what happened. Until the lease is over, the answer is 409 in-flight. A process that was only
// cut off from Redis stores its response when it can: from then on a retry gets that response.
//
// A response of 500 and above is stored too, because a handler that fails seldom knows that nothing has happened. One
// that does know calls [Execution.Discard], and a retry runs. Other responses that [WithStored] does not store still
// free the key, by default 404 and 429 among others: if the handler may send one after an effect, use [StoreAll].
//
// It costs a third round trip for a first request ([lock.Lease.Hold], before the handler), and a second one for a
// duplicate in flight. Claim and Hold together take at most [lock.WithOpTimeout]. If they fail, the request is answered
// with 503, its key is released in the background, and a retry may get 409 until the lease has run out. If the process
// dies before that release, a retry gets outcome-unknown although nothing ran.
//
// Instances with and without it may share a namespace: each claim records its mode. Idempotency panics when it is
// combined with [WithFailOpen], or with a [WithRetention] above [lock.MaxHold].
func WithAtMostOnce() Option {
	return func(o *options) { o.atMostOnce = true }
}

// WithMaxDuration limits how long a handler may run. The default is 60 s. After d its context is done, with the cause
// [context.DeadlineExceeded], and its lease is no longer renewed: once the lease has run out too, a retry may run.
//
// A response that comes later still counts. If the handler returns without one, the client gets an empty 504, which is
// not stored. WithMaxDuration panics when d is not positive.
func WithMaxDuration(d time.Duration) Option {
	if d <= 0 {
		panic(fmt.Sprintf("middleware.WithMaxDuration: %v is not positive", d))
	}
	return func(o *options) { o.maxDuration = d }
}

// WithFailOpen runs the handler unprotected when Redis does not answer. The default is 503 store-unavailable, and
// nothing runs. With it, duplicates during an outage run twice, and each request still waits for Redis first, for
// [lock.WithOpTimeout] at most. A request does not run if its key is known to hold something, if its deadline has passed,
// or after [lock.Locker.Close].
func WithFailOpen() Option {
	return func(o *options) { o.failOpen = true }
}

// WithShadow only watches: every request runs, and the [Event] says what would have happened without this option. By
// default the middleware acts. Use it to see, on a live API, which requests would be refused or replayed, before
// anything is.
//
// Event.Outcome and Event.Status are what the client would have got: Reused and 422, although the handler ran.
// Event.Shadow is true. If a response would have been replayed, Event.Differs reports whether the handler now answered
// with another status or body: then the request took effect again. A duplicate in flight does not wait ([WithWait]).
//
// What a request meets is what it would meet without the middleware, with these exceptions:
//
//   - A body of up to [WithMaxBody] bytes is read before the handler runs. A longer one is not limited, and reaches the
//     handler unchanged. A body of unknown length on HTTP/2 is left alone, since its sender may wait for an answer in
//     between: the outcome is Unprotected, and Event.Err says so. A handler of HTTP/1 that calls EnableFullDuplex and
//     answers before such a body is complete must stay outside of the middleware.
//   - Redis may delay a request by the time for one operation ([lock.WithOpTimeout]) in all. After an error it is left
//     alone for one second, and requests are StoreUnavailable meanwhile.
//   - The handler's ResponseWriter is wrapped if the request would have run or been replayed. It has the methods Flush,
//     Hijack, Push and CloseNotify if the original one has them, and what is written goes out at once.
//   - [FromContext] returns an Execution, unless another middleware of this package around this one acts. Its Key is
//     another one for each run and its Fence is 0, so that nothing behind the handler takes two runs for one. Keep,
//     Discard, Retain and Unknown count for the Event, and for what a later request is compared with.
//
// The context of the handler ends with the request's, and neither with the lease nor after [WithMaxDuration]; Event.Err
// says if the handler took longer. A panic in the key function or in a function of [WithFingerprint], [WithStored] or
// [WithTraceparent] is recovered, and is in Event.Err.
//
// Shadow has keys of its own in Redis, in the Locker's namespace. An instance that acts sees nothing of what one in
// shadow has stored, and the reverse: two runs under one key, which shadow allows, leave nothing that could be replayed.
// It stores fingerprints, and of a response its status and the SHA-256 of its body, for the retention.
//
// Idempotency panics when WithShadow is combined with [WithJournal], whose rows belong to runs that happen once.
func WithShadow() Option {
	return func(o *options) { o.shadow = true }
}

// WithJournal has a database decide, beside Redis, what has happened: see [Journal], and package sqljournal. Redis may
// then forget, fail over or be away, and no request is refused because of it. The default is none. It panics if j is
// nil; Idempotency panics if it is combined with [WithFailOpen].
//
// The journal is asked when the key is claimed and before the handler runs. If it does not answer twice within 3
// seconds each, the request gets 503 and nothing runs. The outcome of a run is stored in the journal first and then in
// Redis. If the journal cannot store it, the response goes out, [Event].Pending is set, and storing goes on in the
// background for up to an hour; until then a retry gets 409. The loss of the Redis lease does not end a run. After an
// error Redis is left alone for one second; the Event of a request that ran without Redis has the reason.
//
// With an intent journal an unknown outcome never runs again, as with [WithAtMostOnce]. With a transactional one a run
// whose transaction was not committed runs again, as it does without a journal; a response that the handler gives
// outside of the transaction is stored all the same, and the Event has an error that says so.
//
// A handler of a transactional journal that takes its effect outside of the transaction has no protection while Redis
// cannot be reached: two requests with one key may both run then.
//
// Instances that share keys must all have had the journal for the longest retention before one of them does without
// WithAtMostOnce: what an instance without the journal has stored is in Redis alone. Until then each has both: with both
// options, a request is refused with 503 if Redis cannot be reached.
func WithJournal(j Journal) Option {
	if j == nil {
		panic("middleware.WithJournal: the journal is nil")
	}
	return func(o *options) { o.journal = j }
}

// WithWait lets a duplicate of a running request wait up to d for its response, so that both clicks of a double click
// end on the same page. The default is 0: the duplicate is answered with 409 in-flight at once, as it is when d is
// over.
//
// 10 s are recommended. Most clients do not retry a 409 by themselves, among them urllib3, ky, axios-retry, got in
// part, and go-retryablehttp: if their first try is cut off while it runs, they never get its response. The SDKs of
// Stripe and those that Stainless generates do retry, by the status or by X-Should-Retry.
//
// A wait ends early enough to answer before http.Server.WriteTimeout and before the deadline of the request's context,
// both counted from the arrival of the request: a tenth of that time before it, 500 ms at most. A deadline set by
// [http.ResponseController] is not seen.
//
// A waiter never runs the handler. If the first request ends without leaving a response (because it is not to be
// stored, or its process died), the waiter is answered with 503 run-failed, and a retry may run. An error of Redis does
// not end a wait; if Redis has not recovered when d is over, the Event has the error. A waiting client that disconnects
// affects no other.
//
// Each waiter holds a connection and a goroutine, but no body; [WithMaxWaiters] limits them. The waiters for a key in
// one process share their look-ups in Redis, and a message wakes them ([lock.Locker.Wait]). WithWait panics when d is
// negative.
func WithWait(d time.Duration) Option {
	if d < 0 {
		panic(fmt.Sprintf("middleware.WithWait: %v is negative", d))
	}
	return func(o *options) { o.wait = d }
}

// WithMaxWaiters limits how many requests may wait at the same time ([WithWait]), over all keys and all handlers
// wrapped by one middleware value. The default is 1,000. One more is answered with 409 in-flight at once, and its Event
// has an error. Requests that run, or are answered without waiting, do not count. It panics when n is below 1.
func WithMaxWaiters(n int) Option {
	if n < 1 {
		panic(fmt.Sprintf("middleware.WithMaxWaiters: %d is below 1", n))
	}
	return func(o *options) { o.maxWaiters = int64(n) }
}
