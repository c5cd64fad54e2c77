package middleware

import (
	"time"

	"github.com/onceguard/onceguard/internal/option"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/journal"
)

// WithAtMostOnce does not run a request again whose outcome is unknown, for [WithRetention]'s time: the handler panicked,
// the process died, the handler ran past [WithMaxDuration] without an answer, its response was missing, broken or never
// reached Redis, it passed on the refusal of an inner guard, or it called [Execution.Unknown]. Use it for money. By default
// such a request runs again when the lease has run out.
//
// A retry of such a request gets 409 in-flight until the lease has run out, and then 409 outcome-unknown for
// WithRetention's time. In that time a person or another system has to find out what happened, because after it a retry
// runs, unless [WithKeyAge] refuses it. A process that was only cut off from Redis stores its response when it can. From
// then on a retry gets that response.
//
// A response of 500 and above is stored too, because a handler that fails seldom knows that nothing has happened. One
// that does know calls [Execution.Discard], and a retry runs. Other responses that [WithStored] does not store still
// free the key, by default 404 and 429 among others. If the handler may send one after an effect, use [StoreAll].
//
// It costs a second round trip for a duplicate in flight. If the claim fails, the request gets 503, and its key is
// released in the background until that is certain (the hold of [lock.Locker.Claim]). A retry may get 409 until then. If
// Redis stalls and the process is killed before that release, a retry gets outcome-unknown although nothing ran.
//
// Instances with and without it may share a namespace: each claim records its mode. Idempotency panics when it is
// combined with [WithFailOpen], or with a [WithRetention] above [lock.MaxHold].
func WithAtMostOnce() Option {
	return func(o *options) { o.policy.AtMostOnce = true }
}

// WithMaxDuration limits how long a handler may run. The default is 60 s. After d its context is done, with the cause
// [context.DeadlineExceeded], and its lease is no longer renewed: once the lease has run out too, a retry may run.
//
// A response that comes later still counts. If the handler returns without one, the client gets an empty 504, which is
// not stored. WithMaxDuration panics when d is not positive.
//
// The deadline of an outer middleware, such as chi's Timeout, ends the context too. If a response comes after that, chi
// writes a second status, and net/http logs a superfluous WriteHeader.
func WithMaxDuration(d time.Duration) Option {
	option.Check(d > 0, "middleware.WithMaxDuration: %v is not positive", d)
	return func(o *options) { o.policy.MaxDuration = d }
}

// WithFailOpen runs the handler unprotected when Redis does not answer. The default is 503 store-unavailable, and
// nothing runs. With it, duplicates during an outage run twice. Each request still waits for Redis first, for
// [lock.WithOpTimeout] at most. A request does not run if its key is known to hold something, if its deadline has
// passed, or after [lock.Locker.Close]. Idempotency panics when it is combined with [WithAtMostOnce] or [WithJournal].
func WithFailOpen() Option {
	return func(o *options) { o.policy.FailOpen = true }
}

// WithShadow only watches: every request runs, and the [Event] tells what would have happened without this option. By
// default the middleware acts. Use it to see, on a live API, which requests would be refused or replayed, before
// anything is.
//
// Event.Outcome and Event.Status are what the client would have got: Reused and 422, although the handler ran.
// Event.Shadow is true. If a response would have been replayed, Event.Differs reports whether the handler now answered
// with another status or body, or with cookies that the replay would lack ([WithCookies]). Another body often means that
// the request took effect again. A duplicate in flight does not wait ([WithWait]).
//
// A request is served as without the middleware, with these exceptions:
//
//   - The middleware reads a body of up to [WithMaxBody] bytes before the handler runs. It does not limit a longer one,
//     and the handler gets the whole body unchanged. When the handler has returned, reading that body fails.
//   - It does not read a body of unknown length on HTTP/2, because the sender may wait for an answer before it goes on.
//     The outcome is then Unprotected, with an Event.Err. Do not wrap a handler of HTTP/1 that calls EnableFullDuplex
//     and answers before such a body is complete.
//   - Redis delays a request by at most the time for one operation ([lock.WithOpTimeout]) in all. After an error the
//     middleware leaves Redis alone for one second, in which requests are StoreUnavailable.
//   - The handler's ResponseWriter is wrapped if the request would have run or been replayed. It always has the methods
//     Flush, Hijack, Push and CloseNotify. Without the original one's they return [http.ErrNotSupported], or do nothing.
//     What is written is sent at once.
//   - [FromContext] returns an Execution, unless another middleware of this package around this one acts. Its Key is
//     another one for each run and its Fence is 0, so that no system behind the handler takes two runs for one. Keep,
//     Discard, Retain and Unknown affect only the Event, and what a later request is compared with.
//
// The context of the handler ends with the request's. It ends neither with the lease nor after [WithMaxDuration], but
// Event.Err tells if the handler took longer. A panic in the key function, or in a function of [WithFingerprint],
// [WithStored] or [WithTraceparent], is recovered and is in Event.Err.
//
// Shadow has its own keys in Redis, in the Locker's namespace. An instance that acts and one in shadow do not see each
// other's keys: two runs under one key, which shadow allows, leave nothing that could be replayed. Shadow stores
// fingerprints and, of a response, its status and the SHA-256 of its body, for [WithRetention]'s time.
//
// Idempotency panics when WithShadow is combined with [WithJournal], whose rows belong to runs that happen once.
func WithShadow() Option {
	return func(o *options) { o.shadow = true }
}

// WithJournal lets a database decide, in addition to Redis, what has happened: see [journal.Journal], and package
// sqljournal. Redis may then lose data, fail over or be unreachable, and no request is refused because of it. The
// default is no journal. WithJournal panics if j is nil. Idempotency panics if it is combined with [WithFailOpen] or
// [WithShadow], and if the journal has another namespace than the Locker.
//
// Before the handler runs, the middleware claims the key in Redis and then asks the journal. If the journal does not
// answer twice, within 3 seconds each, the request gets 503 and nothing runs. When the handler has returned, the
// outcome is stored in the journal first and then in Redis. If the journal cannot store it, the response is sent,
// [Event].Pending is set, and storing goes on in the background for up to an hour. Until then a retry gets 409.
//
// The loss of the Redis lease does not end a run. After an error the middleware leaves Redis alone for one second. The
// Event of a request that ran without Redis has the reason.
//
// With an intent journal a run whose outcome is unknown does not run again before a sweep or an operator has ended its
// row, however long that takes. A 5xx is stored as with [WithAtMostOnce]. With a transactional journal, a run whose
// transaction was not committed runs again, as without a journal. A response that the handler gives outside of the
// transaction is stored, and the Event reports an error.
//
// If a handler takes its effect outside of a transactional journal's transaction, only Redis protects that effect:
// while Redis cannot be reached, two requests with one key may both run.
//
// To introduce a journal, give each of the instances that share keys both this option and [WithAtMostOnce], because
// what an instance without a journal has stored is in Redis alone. With both options a request gets 503 if Redis cannot
// be reached. Remove WithAtMostOnce only when all instances have had the journal for the longest retention.
//
// An intent journal also works without Redis, with a Locker of [lock.None]. A request then costs two commits. A duplicate
// gets 409 until the run's time limit ([WithMaxDuration]), or waits by polling the journal ([WithWait]). If the process
// dies, the outcome is unknown from that limit on until the row is swept or resolved. Every instance that shares keys must have the
// same kind of Locker. With lock.None, Idempotency panics if the journal is transactional, as fifty clicks would run fifty
// handlers, of which one commits; and with WithAtMostOnce, which the journal promises anyway.
func WithJournal(j journal.Journal) Option {
	option.Check(j != nil, "middleware.WithJournal: the journal is nil")
	return func(o *options) { o.policy.Journal = j }
}

// WithWait lets a duplicate of a running request wait up to d for its response, so that both clicks of a double click
// end on the same page. The default is 0: the duplicate gets 409 in-flight at once, as it does when d has passed.
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
// stored, or its process died), the waiter gets 503 run-failed, and a retry may run. With [WithAtMostOnce] or an intent
// journal it gets 409 outcome-unknown if the outcome is unknown, and no retry runs. An error of Redis does not end a
// wait. If Redis has not recovered when d has passed, the Event reports the error. A client that disconnects gives up its
// place. net/http takes one that has shut down its write side for disconnected: it gets 409 in-flight.
//
// Each waiter needs a connection and a goroutine, but no body. The waiters for a key in one process share their look-ups in
// Redis, and a message wakes them ([lock.Locker.Wait]).
//
// most is one number: how many requests may wait at the same time, over all keys and all handlers wrapped by one
// middleware value. The default is 1,000. At most a tenth of them, and at least one, may wait for one key, so that a client
// that repeats its own request does not take the others' places. One more is answered with 409 in-flight at once, and its
// Event has an error. Requests that run, or are answered without waiting, do not count.
//
// WithWait panics when d is negative, when there are two numbers, and when the number is below 1.
func WithWait(d time.Duration, most ...int) Option {
	option.Check(d >= 0, "middleware.WithWait: %v is negative", d)
	limit := run.MaxWaiters("middleware.WithWait", most)
	return func(o *options) { o.policy.Wait, o.policy.MaxWaiters = d, limit }
}
