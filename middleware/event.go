package middleware

import (
	"time"

	"github.com/onceguard/onceguard/internal/run"
)

// Outcome names what happened to a request.
type Outcome = run.Outcome

// Outcomes of a run.
const (
	// Executed: the handler ran, and its response is stored.
	Executed Outcome = "executed"
	// CookiesDropped: as Executed, but Set-Cookie was left out of what is stored ([WithCookies]).
	CookiesDropped Outcome = "cookies-dropped"
	// NotStored: the handler ran, and its response cannot be replayed or, if Err is set, could not be stored.
	NotStored Outcome = "not-stored"
	// Freed: the handler ran, its response is not to be stored, and a retry runs.
	Freed Outcome = "freed"
	// Unknown: it is not known whether the handler took effect; Err is the reason.
	Unknown Outcome = "unknown"
	// Panicked: the handler panicked or called runtime.Goexit, so it is not known whether it took effect.
	Panicked Outcome = "panicked"
	// LeaseLost: the handler ran, and another request, an operator or another program took its key
	// before the end. Both may have taken effect.
	LeaseLost Outcome = "lease-lost"
	// Unprotected: the handler ran without a key or, if Err is set, without Redis ([WithFailOpen]).
	Unprotected Outcome = "unprotected"
)

// Outcomes of a duplicate.
const (
	// Replayed: the stored response was sent.
	Replayed Outcome = "replayed"
	// InFlight: 409, the first request still runs. Err is set if the request was not allowed to wait, or Redis failed
	// during the wait.
	InFlight Outcome = "in-flight"
	// Reused: 422, the key was used for another request.
	Reused Outcome = "reused"
	// NotReplayable: 409, the first request ran and its response was not kept; or, for a waiter, 503: it left none.
	NotReplayable Outcome = "not-replayable"
	// OutcomeUnknown: 409, it is not known whether the first request took effect; Err is the reason.
	OutcomeUnknown Outcome = "outcome-unknown"
	// FingerprintChanged: 409, the response is stored under another kind of fingerprint, and cannot be compared.
	FingerprintChanged Outcome = "fingerprint-changed"
	// Unreadable: 500, the key holds no record that can be read. Err is the reason.
	Unreadable Outcome = "unreadable"
)

// Outcomes of a request that was refused before it could run. Nothing ran.
const (
	// MissingKey: 400, there is no key ([WithRequired]).
	MissingKey Outcome = "missing-key"
	// InvalidKey: 400, the key is malformed. Err is the reason.
	InvalidKey Outcome = "invalid-key"
	// ExpiredKey: 400, the key is too old to run, and nothing is stored under it ([WithKeyAge]).
	ExpiredKey Outcome = "expired-key"
	// KeyFailed: 500, the key function failed, or the body was read before. Err is the reason.
	KeyFailed Outcome = "key-failed"
	// NoUser: 401, the key function found no user.
	NoUser Outcome = "no-user"
	// TooLarge: 413, the body is longer than [WithMaxBody].
	TooLarge Outcome = "too-large"
	// BodyUnreadable: 400, the client's body could not be read. Err is the reason.
	BodyUnreadable Outcome = "body-unreadable"
	// StoreUnavailable: 503. Redis or the journal did not answer, the request's deadline had passed, or the stored
	// response could not be confirmed.
	StoreUnavailable Outcome = "store-unavailable"
)

// Event is what [WithObserver] reports about one request.
type Event struct {
	Outcome Outcome
	Key     string // the storage key: the key as it stands in Redis, hashed; empty if the request has none
	Method  string // of the request
	Pending bool   // the response is not stored yet: storing goes on in the background (lock.ErrPending)

	// Status is that of the response; 0 if there is none, or if it is not known. A status of 500 and above with the outcome
	// Executed or CookiesDropped is a failure that is now stored, and with Replayed one that a retry has got: see
	// [WithNothingHappened].
	Status int

	// Err is why something failed: the key function, Redis, or the client's body; or why an outcome is unknown. It is
	// also set if the body was empty although its length was not known in advance (chunks, HTTP/2): an outer middleware
	// may have read it. Such a request is served all the same, because it may have been sent without a body.
	Err error

	// Pattern is [http.Request.Pattern] of the handler's request after the handler has returned. If the handler did not
	// run, it is the pattern of the request as it arrived. So a middleware around a single handler of a ServeMux always
	// has it, and one around a whole mux only for requests that ran. It is empty if no mux has set it. A ServeMux's may
	// begin with a method and a host. In older versions of chi, a sub-router's has only the part that the sub-router
	// matched.
	Pattern string

	// Size is the length in bytes of the record of the response, as it is stored: encrypted, compressed. It is 0 if no
	// record was stored or replayed.
	Size int
	// Age is the time since the replayed response was completed, by the wall clocks of two processes. It is never
	// negative, and 0 if none was replayed.
	Age time.Duration
	// FirstRunning and FirstEnded are set if Outcome is Reused: whether the request that has the key still runs, or when it
	// ended, by the wall clock of the process that ran it. Both are zero if it is not known how it ended.
	FirstRunning bool
	FirstEnded   time.Time
	// Traceparent is that of the run whose response was replayed: see [WithTraceparent]. It is empty if there is none.
	Traceparent string

	// Shadow is true with [WithShadow]: the handler ran, and its response was sent. The other fields tell what would
	// have happened.
	Shadow bool
	// Differs is only true if Shadow is true and the outcome is Replayed: the handler answered with another status or
	// body than those of the response that would have been replayed, or with cookies, which a replay lacks without
	// [WithCookies]. If the stored response is of 500 or above, Err says so: it would have been replayed instead of a later
	// success.
	Differs bool

	// The phases of the request, in the order of time. They do not overlap. A phase that did not happen is zero.
	Claim   Phase // the key was claimed in Redis, or found to be taken
	Wait    Phase // WithWait: for another request with the same key
	Journal Phase // WithJournal: the journal was asked whether the run may begin, or how an earlier one ended
	Handler Phase // the handler ran, protected or not
	Settle  Phase // from the handler's return: the response was stored, in the journal too, or the key was freed
}

// Phase is a part of the time that a request took: its Start, with a monotonic reading, and its Duration. Both are zero if the
// phase did not happen.
type Phase = run.Phase

// replayEvent returns the Event of a replay.
func replayEvent(result *run.Result, status int) Event {
	e := eventOf(result, status)
	e.Age, e.Traceparent = max(0, time.Since(result.Record.Completed)), result.Record.Trace.String()
	return e
}

// eventOf returns the Event of a request whose result this is.
func eventOf(result *run.Result, status int) Event {
	return Event{
		Outcome: result.Outcome, Status: status, Err: result.Err, Size: result.Size, Settle: result.Settle,
		FirstRunning: result.First.Running, FirstEnded: result.First.Ended,
	}
}
