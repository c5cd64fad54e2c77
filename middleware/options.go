package middleware

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/middleware/internal/record"
)

// Option changes a default of [Idempotency].
type Option func(*options)

type options struct {
	methods      map[string]bool
	required     bool
	retention    time.Duration
	wait         time.Duration
	maxWaiters   int64
	atMostOnce   bool
	stored       func(status int) bool
	maxDuration  time.Duration
	maxBody      int64
	maxResponse  int
	rules        []rule // at least one: see defaultRules
	failOpen     bool
	journal      Journal // nil without WithJournal
	cookies      bool
	codec        record.Codec
	observe      func(context.Context, Event) // may be nil
	writeProblem func(http.ResponseWriter, *http.Request, Problem)
}

func defaultOptions() options {
	return options{
		methods:      map[string]bool{http.MethodPost: true, http.MethodPatch: true},
		retention:    24 * time.Hour,
		maxWaiters:   1000,
		stored:       StoreDefault,
		maxDuration:  60 * time.Second,
		maxBody:      1 << 20,
		maxResponse:  1 << 20,
		rules:        defaultRules,
		writeProblem: writeProblem,
	}
}

// WithMethods says which requests are protected. The default is POST and PATCH; all others pass untouched, since
// RFC 9110 section 9.2.2 makes them idempotent by themselves. It panics on an empty list or method.
func WithMethods(methods ...string) Option {
	if len(methods) == 0 {
		panic("middleware.WithMethods: no method")
	}
	set := make(map[string]bool, len(methods))
	for _, m := range methods {
		if m == "" {
			panic("middleware.WithMethods: empty method")
		}
		set[m] = true
	}
	return func(o *options) { o.methods = set }
}

// WithRequired answers a request without a key with 400 key-missing. The default is to let it pass unprotected.
func WithRequired() Option {
	return func(o *options) { o.required = true }
}

// WithRetention says how long a stored response is replayed, counted from when the handler was done. The default is
// 24 h; [Execution.Retain] changes it for one response. It panics below a millisecond.
func WithRetention(d time.Duration) Option {
	if d < time.Millisecond {
		panic(fmt.Sprintf("middleware.WithRetention: %v is below a millisecond", d))
	}
	return func(o *options) { o.retention = d }
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

// WithStored says by their status which responses are stored. What is not stored frees the key: a retry runs again. The
// default is [StoreDefault]. With [WithAtMostOnce] a response of 500 and above is stored whatever f says. It panics when
// f is nil; f is called concurrently.
func WithStored(f func(status int) bool) Option {
	if f == nil {
		panic("middleware.WithStored: f is nil")
	}
	return func(o *options) { o.stored = f }
}

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

// WithJournal has a database decide, beside Redis, what has happened: see [Journal], and package sqljournal. Redis may then
// forget, fail over or be away, and no request is refused because of it. It panics if j is nil; Idempotency panics if it
// is combined with [WithFailOpen].
//
// The journal is asked when the key is claimed and before the handler runs. If it does not answer twice within 3 seconds each,
// the request gets 503 and nothing runs. The outcome of a run is stored in the journal first and then in Redis. If the
// journal cannot store it, the response goes out, [Event].Pending is set, and storing goes on in the background for up to an
// hour; until then a retry gets 409. The loss of the Redis lease does not end a run, and after an error Redis is not asked
// for a second.
//
// With an intent journal an unknown outcome never runs again, as with [WithAtMostOnce]. With a transactional one a run whose
// transaction was not committed runs again, as it does without a journal; a response that the handler gives outside of
// the transaction is stored all the same, and the Event has an error that says so.
//
// Instances that share keys must all have the journal before one of them does without WithAtMostOnce. Until then each has
// both: with both options, a request is refused with 503 when Redis is away.
func WithJournal(j Journal) Option {
	if j == nil {
		panic("middleware.WithJournal: the journal is nil")
	}
	return func(o *options) { o.journal = j }
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

// WithMaxBody limits the bytes of a request's body, which is read whole before the handler runs. A longer one is answered
// with 413 body-too-large. The default is 1 MiB. It panics when n is negative.
func WithMaxBody(n int64) Option {
	if n < 0 {
		panic(fmt.Sprintf("middleware.WithMaxBody: %d is negative", n))
	}
	return func(o *options) { o.maxBody = n }
}

// WithMaxResponse limits the bytes of a response's body that are held back and stored. A longer response goes out as it is
// written, and a duplicate is answered with 409 response-not-stored. The default is 1 MiB. It panics when n is negative.
func WithMaxResponse(n int) Option {
	if n < 0 {
		panic(fmt.Sprintf("middleware.WithMaxResponse: %d is negative", n))
	}
	return func(o *options) { o.maxResponse = n }
}

// WithFingerprint replaces the rule that tells two requests with one key apart. The default is the SHA-256 of method,
// path, query, media type and body. The result of f is hashed, so it may have any length. f is called concurrently, before
// the handler, with the body already read; it must not keep or change the body. The default ignores the boundary of a
// multipart body, which clients choose anew for each try; an f that hashes the body does not. WithFingerprint panics when
// name is empty or f is nil.
//
// The name is stored, hashed, with every fingerprint, and only fingerprints of the same name are compared. Change f and
// its name together: under the old name the new f answers 422 to repetitions of requests that the old f has seen. Under a
// new name, or with the default after an f, a request whose stored response has another name is neither compared nor
// replayed: it is answered with 409 fingerprint-changed until the retention is over, and with 409 in-flight while the
// first request runs.
func WithFingerprint(name string, f func(r *http.Request, body []byte) []byte) Option {
	if name == "" {
		panic("middleware.WithFingerprint: name is empty")
	}
	if f == nil {
		panic("middleware.WithFingerprint: f is nil")
	}
	sum := func(r *http.Request, body []byte) [sha256.Size]byte { return sha256.Sum256(f(r, body)) }
	return func(o *options) { o.rules = []rule{{kind: customKind(name), sum: sum, lends: true}} }
}

// WithFailOpen runs the handler unprotected when Redis cannot be asked. The default is 503 store-unavailable, and nothing
// runs. With it, duplicates that come during an outage happen twice, and each request still waits for as long as the locker
// tries, [lock.WithOpTimeout] at most. A request whose key is known to hold something is never run.
func WithFailOpen() Option {
	return func(o *options) { o.failOpen = true }
}

// WithCookies keeps Set-Cookie in stored responses. The default is to leave it out and to say [CookiesDropped]: a
// cookie is often a credential, and a replay a day later would set yesterday's.
func WithCookies() Option {
	return func(o *options) { o.cookies = true }
}

// WithEncryption seals what is stored, with AES-256-GCM: responses, and what a request in flight says of itself, each
// with its fingerprint. The first key seals, every key opens. A key is 32 random bytes from a secret store, and never
// logged; keys are copied. The default is to seal nothing. It panics when there is no key, or one of another length.
//
// Each storage key has a key of its own, derived with HKDF-SHA-256 (RFC 5869), so that no key sees more than a few
// random nonces (NIST SP 800-38D section 8.3). The storage key, version and flags are authenticated: what was
// changed, or copied under another key, does not open. What does not open, or is not sealed, is answered with
// 500 record-unreadable, and Event.Err says why; nothing runs, not with [WithFailOpen] either. Without WithEncryption
// that is the answer to all that is sealed.
//
// A reader of Redis still sees the hashed keys, the tokens and holds of leases, when something was written and when
// it ends, its size, and whether it is a response, compressed, or too long to have been kept. A writer
// can still delete a record, or put an older one of the same key back.
//
// To change the key, give all instances the new one as the last; when all have it, as the first; and when the longest
// retention has passed since, without the old one. To switch encryption on, see [WithPlaintextReads].
//
// To seal or to open takes about 2 µs and 0.25 µs for each KiB. A first request and a replay do it twice, once for the
// claim:
//
//	go test -run '^$' -bench Record ./middleware
func WithEncryption(keys ...[]byte) Option {
	if len(keys) == 0 {
		panic("middleware.WithEncryption: no key")
	}
	ring := make(record.Keyring, len(keys))
	for i, key := range keys {
		if len(key) != record.KeySize {
			panic(fmt.Sprintf("middleware.WithEncryption: key %d has %d bytes, not %d", i+1, len(key), record.KeySize))
		}
		ring[i] = record.Extract(key)
	}
	return func(o *options) { o.codec.Keys = ring }
}

// WithPlaintextReads also reads what is not sealed. It is for the day when [WithEncryption] is switched on: give it
// together with that, and take it away when the longest retention has passed since the last instance without encryption
// was gone. Such an instance answers 500 record-unreadable to a repetition of what another has sealed; nothing runs
// twice. As long as it is given, everybody who can write to Redis can put a response there. Idempotency panics when it is given
// without WithEncryption.
func WithPlaintextReads() Option {
	return func(o *options) { o.codec.PlaintextReads = true }
}

// WithCompression compresses, before it is sealed, what is stored of a response if that has min bytes or more: status,
// header and body, with DEFLATE at its fastest level. What does not get smaller is stored as it is. All instances read
// both, whatever their options are. The default is not to compress. It panics when min is negative.
//
// JSON in Redis 7.0 (MEMORY USAGE), and the time that it takes to encode and to decode a record without and with:
//
//	  1 KiB      1400 B       760 B     write 1 µs   20 µs    read  1 µs   14 µs
//	 16 KiB     20600 B      5240 B     write 5 µs  150 µs    read  2 µs   85 µs
//	256 KiB    327800 B     82040 B     write 70 µs 2.7 ms    read 15 µs  1.5 ms
//
//	go test -run '^$' -bench 'Compression|Record' ./middleware
//
// Below 1 KiB it is seldom worth it. Each concurrent compression takes 1.2 MB of memory, which is used again.
//
// How well something compresses shows in its size, also when it is sealed: do not use it where one response has a
// secret beside text that an attacker chooses, if the attacker can see sizes in Redis (the attacks CRIME and BREACH).
func WithCompression(min int) Option {
	if min < 0 {
		panic(fmt.Sprintf("middleware.WithCompression: %d is negative", min))
	}
	return func(o *options) { o.codec.Compress, o.codec.CompressMin = true, min }
}

// WithObserver calls f once for every request whose method is protected, after its response, in the goroutine that
// served it. Log and measure here. The context is the request's own: it may be done, for the client may have left. The
// status is what was written here; an http.TimeoutHandler around may have answered otherwise. f is called concurrently.
// It panics when f is nil.
//
// f is not called for a request that runs already under the same key, since the middleware is mounted twice: the outer
// one's is. Nor is it when a key function or the function of [WithFingerprint] has panicked.
func WithObserver(f func(context.Context, Event)) Option {
	if f == nil {
		panic("middleware.WithObserver: f is nil")
	}
	return func(o *options) { o.observe = f }
}

// WithProblem writes the problem responses instead of the default, which is application/problem+json (RFC 9457), or a
// small HTML page in a shopper's words for a client that prefers it. That page has no script, and leads back to where the
// Referer says that the request came from, if that is on the same host. Retry-After, X-Should-Retry, Cache-Control and
// Link are already set when f is called. If f answers with another status, the Event has that of the Problem all the same.
// It panics when f is nil; f is called concurrently.
func WithProblem(f func(http.ResponseWriter, *http.Request, Problem)) Option {
	if f == nil {
		panic("middleware.WithProblem: f is nil")
	}
	return func(o *options) { o.writeProblem = f }
}

// StoreDefault stores every final status but those that say that this request was not carried out, or not because of
// what it asks: 401, 403, 404, 405, 408, 415, 425, 429, and the server's errors from 500 on. A retry of these runs
// again.
func StoreDefault(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusRequestTimeout, http.StatusUnsupportedMediaType, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status < 500
}

// StoreAll stores every response, so that no handler that answered runs again.
func StoreAll(int) bool { return true }
