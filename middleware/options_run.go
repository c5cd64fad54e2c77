package middleware

import (
	"fmt"
	"time"
)

// WithAtMostOnce never runs a request again whose outcome is unknown: the handler panicked, its process died, it ran past
// [WithMaxDuration] without an answer, its response was broken or could not be stored, or it called [Execution.Unknown]. A
// retry is answered with 409 outcome-unknown until the retention is over, and a person or another system has to find out
// what happened. It is the mode for money: by default such a request runs again when the lease has run out.
//
// A response of 500 and above is stored too, because a handler that answers so seldom knows that nothing has happened. A
// handler that does know calls [Execution.Discard], and a retry runs. What else [WithStored] does not store still frees
// the key, by default 404 and 429 among others: a handler that may answer so after an effect wants [StoreAll].
//
// Until the lease of such a run is over, a retry is answered with 409 in-flight. A process that was only cut off from Redis
// stores its response when it can: from then on a retry gets that response, and no longer outcome-unknown.
//
// It costs a third round trip for a first request ([lock.Lease.Hold], before the handler), and a second one for a
// duplicate in flight. Claim and Hold together take at most [lock.WithOpTimeout]; when they fail, the request is answered
// with 503, its key is released in the background, and a retry may get 409 until the lease has run out. If the process dies
// before it could release a key that it holds, a retry gets outcome-unknown although nothing ran.
//
// Instances with and without it may share a namespace: the claim itself says which it is. It cannot go with WithFailOpen:
// Idempotency panics.
func WithAtMostOnce() Option {
	return func(o *options) { o.atMostOnce = true }
}

// WithMaxDuration limits how long a handler may run. After that its context is done, with the cause
// [context.DeadlineExceeded], and its lease is no longer renewed: when the lease has run out too, a retry may run. A
// handler that answers late has answered; one that returns without a word is answered with an empty 504, which is not
// stored. The default is 60 s. It panics when d is not positive.
func WithMaxDuration(d time.Duration) Option {
	if d <= 0 {
		panic(fmt.Sprintf("middleware.WithMaxDuration: %v is not positive", d))
	}
	return func(o *options) { o.maxDuration = d }
}

// WithFailOpen runs the handler unprotected when Redis cannot be asked. The default is 503 store-unavailable, and nothing
// runs. With it, duplicates that come during an outage happen twice, and each request still waits for as long as the locker
// tries, [lock.WithOpTimeout] at most. A request whose key is known to hold something is never run.
func WithFailOpen() Option {
	return func(o *options) { o.failOpen = true }
}

// WithWait lets a duplicate that comes while the first request runs wait for up to d, and be answered with the same
// response: both clicks of a double click then end on the same page. The default is 0: it is answered with 409 in-flight
// at once, as it is when d is over.
//
// 10 s are recommended. Most clients do not retry a 409 by themselves, among them urllib3, ky, axios-retry, got in part, and
// go-retryablehttp: when the first try of a request is cut off while it runs, they never get its response. The SDKs of
// Stripe and those that Stainless generates do retry, by the status or by X-Should-Retry.
//
// A wait also ends in time for its answer before http.Server.WriteTimeout, and before the deadline of the request's
// context, both counted from when the request came here: by a tenth, or by 500 ms if that is less. It does not see a
// deadline that [http.ResponseController] has set.
//
// A waiter never runs the handler. When the first request ends and leaves no response, because that is not to be stored
// or its process died, the waiter is answered with 503 run-failed, and a retry may run. Trouble with Redis does not end a
// wait; if it has not passed when d is over, the Event has the error. A waiting client that leaves disturbs nobody.
// Waiters hold a connection and a goroutine each, but no body, and there are as many as [WithMaxWaiters] says; in one
// process they share one look at Redis, and a message wakes them ([lock.Locker.Wait]). It panics when d is negative.
func WithWait(d time.Duration) Option {
	if d < 0 {
		panic(fmt.Sprintf("middleware.WithWait: %v is negative", d))
	}
	return func(o *options) { o.wait = d }
}

// WithMaxWaiters says how many requests may wait at the same time ([WithWait]), over all keys and all handlers of one value
// that [Idempotency] has returned. One more is answered with 409 in-flight at once, and the Event has an error. Requests
// that run, and those that are answered without waiting, do not count. The default is 1,000. It panics when n is below 1.
func WithMaxWaiters(n int) Option {
	if n < 1 {
		panic(fmt.Sprintf("middleware.WithMaxWaiters: %d is below 1", n))
	}
	return func(o *options) { o.maxWaiters = int64(n) }
}
