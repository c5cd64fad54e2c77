package middleware

import "time"

// Outcome names what happened to a request.
type Outcome string

const (
	Executed           Outcome = "executed"            // the handler ran and its response is stored
	Replayed           Outcome = "replayed"            // answered with the stored response
	InFlight           Outcome = "in-flight"           // 409: the first request still runs
	Reused             Outcome = "reused"              // 422: same key, other request
	Unprotected        Outcome = "unprotected"         // passed on without a key or, with an Err, without a store (WithFailOpen)
	MissingKey         Outcome = "missing-key"         // 400: no key, though WithRequired
	InvalidKey         Outcome = "invalid-key"         // 400: malformed key, the Err says how; 500: the key function failed with the Err
	NoUser             Outcome = "no-user"             // 401: the key function found no user
	TooLarge           Outcome = "too-large"           // 413: the body is longer than WithMaxBody
	Freed              Outcome = "freed"               // the handler ran, its response is not to be stored, and the key is free; 503: a waiter's
	Unknown            Outcome = "unknown"             // nobody knows what the handler did, the Err says why; 409: a duplicate of such a run
	NotStored          Outcome = "not-stored"          // the handler ran; its response cannot be replayed or, with an Err that says why, is not stored; 409: a duplicate of such a run
	StoreUnavailable   Outcome = "store-unavailable"   // 503: Redis is away, or cannot confirm the response; nothing ran
	Unreadable         Outcome = "unreadable"          // 500: the key holds no record that can be read; 400: the client broke off
	LeaseLost          Outcome = "lease-lost"          // the handler ran, and another request took its key meanwhile: both may have taken effect
	FingerprintChanged Outcome = "fingerprint-changed" // 409: stored under another kind of fingerprint, so it cannot be compared
	CookiesDropped     Outcome = "cookies-dropped"     // executed, and stored without its Set-Cookie
)

// Event is what an observer is told of one request.
type Event struct {
	Outcome Outcome
	Key     string        // as it stands in Redis, hashed; empty when there was none
	Status  int           // the response's, 0 when there is none or it is not known
	Err     error         // what failed, in the key function, Redis or the client's body; why an outcome is Unknown
	Pending bool          // the response could not be stored yet: storing goes on in the background (lock.ErrPending)
	Store   time.Duration // spent waiting for Redis, not for another request (WithWait)
	Handler time.Duration // spent in the handler
}
