package middleware

import (
	"net/http"
	"time"

	"github.com/onceguard/onceguard/internal/option"
	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/middleware/internal/capture"
)

// WithRetention sets how long a stored response is replayed, counted from the return of the handler, in whole
// milliseconds. The default is 24 h. [Execution.Retain] sets it for one response. It panics below a millisecond.
func WithRetention(d time.Duration) Option {
	option.Check(d >= time.Millisecond, "middleware.WithRetention: %v is below a millisecond", d)
	return func(o *options) { o.policy.Retention = d }
}

// WithStored chooses by status which responses are stored. The default is [StoreDefault]. A response that is not stored
// frees the key: a retry runs again. f is called concurrently. WithStored panics when f is nil.
//
// Whatever f returns, and except what [WithoutServerErrors] says of a response of 500 and above,
//
//   - a response of 500 and above is stored with [WithAtMostOnce] and with an intent journal
//   - a response is stored, or a tombstone if it cannot be replayed, after [Execution.Keep], once a byte of it was sent,
//     and when its transaction was committed ([WithJournal])
//   - after [Execution.Discard] nothing is stored, and the key is free, as after a response for which [WithNothingHappened]
//     says so
//   - a run whose outcome is unknown, as after [Execution.Unknown], stores no response and does not free the key (see
//     [Idempotency])
func WithStored(f func(status int) bool) Option {
	option.Check(f != nil, "middleware.WithStored: f is nil")
	return func(o *options) { o.shouldStore = f }
}

// WithNothingHappened names the responses that a handler sends only before it has had any effect. f gets the status and the
// header of a whole response. If it returns true, the response is sent and not stored, and the key is free: a retry runs, in
// every mode, also with [WithAtMostOnce] and an intent journal. By default no response is one of these, so that a transient
// 503 is stored there and replayed for [WithRetention]'s time:
//
//	middleware.WithNothingHappened(func(status int, header http.Header) bool {
//		return status == http.StatusServiceUnavailable && header.Get("Retry-After") != ""
//	})
//
// This is right for a handler that sends a 503 with Retry-After if its database is away or its queue is full, and then has
// written nothing and called nobody. It is wrong if the handler, or a proxy or framework inside of the middleware, may send
// the same response after a part of the work: a retry would do that part again.
//
// What f returns does not count after [Execution.Keep] or [Execution.Unknown], once a byte of the response was sent or a
// transaction was committed, if the handler returned after its context was done, or if the response passes on the refusal of
// a middleware inside (docs/reference.md). Within Journal.InTx or Around of a journal ([WithJournal]) such a response
// rolls the transaction back: InTx returns an error, and what the handler then answers counts.
//
// f is called concurrently. If the option is given more than once, the last f counts. WithNothingHappened panics when f is
// nil.
func WithNothingHappened(f func(status int, header http.Header) bool) Option {
	option.Check(f != nil, "middleware.WithNothingHappened: f is nil")
	return func(o *options) { o.nothing = f }
}

// saysNothing reports whether by this response nothing has happened.
func (o *options) saysNothing(status int, header func() http.Header) bool {
	return o.nothing != nil && o.nothing(status, header())
}

// WithoutServerErrors never stores a response of 500 and above, for an API that promises that a retry after one is
// processed as a new request. By default such a response is not stored either, with these exceptions, which the option
// takes away:
//
//   - [WithStored] may choose to store it.
//   - [Execution.Keep], and sending a part of the response, make it count: a retry gets the response or 409. With the
//     option the key is freed in these cases too, and after Keep the [Event] has an error.
//   - A transaction of a journal commits it ([WithJournal]). With the option Journal.InTx returns an error and rolls the
//     transaction back. What the handler has written in it is gone; the handler then answers outside of it.
//
// A retry may then take effect again. An effect that must happen once belongs in the transaction of a transactional
// journal, which a 5xx rolls back. A handler that panics, or that does not know what has happened and calls
// [Execution.Unknown], is treated as always.
//
// Idempotency panics when it is combined with [WithAtMostOnce] or with an intent journal, which store such a response.
func WithoutServerErrors() Option {
	return func(o *options) { o.forgetsFails = true }
}

// checkServerErrors panics if an option contradicts WithoutServerErrors.
func (o *options) checkServerErrors() {
	const why = "cannot be kept with WithoutServerErrors, which profile.ACP sets: a retry after a 5xx must run, and this would store the 5xx"
	option.Check(!o.forgetsFails || !o.policy.AtMostOnce, "middleware.WithAtMostOnce: "+why)
	option.Check(!o.forgetsFails || o.policy.Journal == nil || !o.policy.Journal.IsIntent(), "middleware.WithJournal: an intent journal "+why)
}

// isForbidden reports whether a response with this status must not be stored.
func (o *options) isForbidden(status int) bool { return o.forgetsFails && status >= 500 }

// forbids is isForbidden for a response that the handler has sent or left to be sent.
func (o *options) forbids(verdict capture.Verdict, status int) bool {
	isResponse := verdict == capture.Whole || verdict == capture.Partial || verdict == capture.Broken
	return isResponse && o.isForbidden(status)
}

// StoreDefault stores every final status except 401, 403, 404, 405, 408, 412, 415, 423, 425, 428, 429, and 500 and above. These
// mean that the request was not carried out, or that it failed for another reason than its own content: a client that fetches
// the ETag again after a 412 may repeat its request under the same key. A retry runs again, except
// after a 5xx with [WithAtMostOnce] or an intent journal: see [WithStored].
func StoreDefault(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusRequestTimeout, http.StatusPreconditionFailed, http.StatusUnsupportedMediaType, http.StatusLocked,
		http.StatusTooEarly, http.StatusPreconditionRequired, http.StatusTooManyRequests:
		return false
	}
	return status < 500
}

// StoreAll stores every response, so that a handler that answered does not run again before the retention has passed.
func StoreAll(int) bool { return true }

// WithMaxResponse limits the response bodies that are buffered and stored to n bytes. The default is 1 MiB. A longer
// body is sent as it is written, and a duplicate gets 409 response-not-stored. It panics when n is negative.
func WithMaxResponse(n int) Option {
	option.Check(n >= 0, "middleware.WithMaxResponse: %d is negative", n)
	return func(o *options) { o.maxResponse = n }
}

// WithCookies keeps Set-Cookie in stored responses. The default is to leave it out, and the outcome is then
// [CookiesDropped]: a cookie is often a credential, and a replay a day later would set yesterday's.
func WithCookies() Option {
	return func(o *options) { o.cookies = true }
}

// WithCompression compresses stored responses of min bytes and more, counting status, header and body, with DEFLATE at
// its fastest level. By default nothing is compressed. A response that would not get smaller, or has more than 64 MiB,
// is stored as it is. Every instance reads both forms, whatever its own options. WithCompression panics when min is
// negative.
//
// JSON shrinks to a half or a quarter, and takes thirty to sixty times as long to write: 65 to 170 µs for 16 KiB. Below 1 KiB
// compression is seldom worth it (internal/bench/README.md). Each concurrent compression takes 1.2 MB of memory, which is
// used again.
//
// The stored size shows how well a response compresses, even if it is encrypted. Do not compress responses that contain
// a secret and text that an attacker chooses, if the attacker can see sizes in Redis (the attacks CRIME and BREACH).
func WithCompression(min int) Option {
	option.Check(min >= 0, "middleware.WithCompression: %d is negative", min)
	return func(o *options) { o.policy.Codec.Compress, o.policy.Codec.CompressMin = true, min }
}

// WithEncryption encrypts what is stored with AES-256-GCM: responses, and the fingerprints of requests in flight. By
// default nothing is encrypted. The first key encrypts, and every key decrypts. A key is 32 random bytes from a secret
// store. Keys are copied and never logged. It panics when there is no key, or when a key has another length.
//
// Each storage key has a key of its own, derived with HKDF-SHA-256 (RFC 5869), so that no key sees more than a few
// random nonces (NIST SP 800-38D section 8.3). The storage key, version and flags are authenticated: a record that was
// changed, or copied under another key, cannot be decrypted. Such a record, or one that is not encrypted, is answered
// with 500 record-unreadable, and Event.Err is the reason; nothing runs, even with [WithFailOpen]. An instance without
// WithEncryption answers every encrypted record the same way.
//
// Anybody who can read Redis still sees the hashed keys, the tokens and holds of leases, when a record was written and
// when it expires, its size, and whether it is a tombstone or compressed. Anybody who can write to Redis can still
// delete a record, or put back an older one of the same key.
//
// To change the key, give all instances the new one as the last; when all have it, as the first; and when the longest
// retention has passed since then, drop the old one. To switch encryption on, see [WithPlaintextReads].
//
// Encrypting or decrypting takes 1 to 2.5 µs, and 0.25 to 0.5 µs for each KiB. A first request and a replay each do it twice.
func WithEncryption(keys ...[]byte) Option {
	ring := record.NewKeyring("middleware.WithEncryption", keys)
	return func(o *options) { o.policy.Codec.Keys = ring }
}

// WithPlaintextReads also reads records that are not encrypted, while [WithEncryption] is being switched on. By default
// such records are answered with 500 record-unreadable. Remove it when the longest retention has passed since the last
// instance without encryption was stopped. An instance without encryption answers 500 record-unreadable to a retry of a
// request whose response another instance has encrypted. Nothing runs twice. While the option is set, anybody who can
// write to Redis can put a response there. Idempotency panics when it is given without WithEncryption.
func WithPlaintextReads() Option {
	return func(o *options) { o.policy.Codec.PlaintextReads = true }
}
