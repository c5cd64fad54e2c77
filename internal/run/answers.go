package run

import (
	"errors"

	"github.com/onceguard/onceguard/internal/record"
)

// This file is the table of all that a request can get that does not run, or whose product is replaced: what it is called,
// and what HTTP, a function and gRPC answer.

// Kind is what a door does next: run the operation, return a product or a record, or answer why there is none.
type Kind uint8

const (
	Begun              Kind = iota + 1 // run the operation
	Own                                // from Conclude: return the run's own product
	Unprotected                        // run the operation without protection: the store does not answer, and Policy.FailOpen is set
	Stored                             // return Result.Record
	InFlight                           // another run with this key has not ended
	Expired                            // the key is too old, and nothing is stored under it: nothing ran
	NoRecord                           // the earlier run has ended or died without a record: a retry may run
	Reused                             // the key belongs to another input
	NotStored                          // the run has ended, and its product was not kept
	UnknownNotStored                   // the same, and it is not known whether it took effect
	Unknown                            // it is not known whether an earlier run took effect
	UnknownYet                         // the same, and a later retry may learn it
	FingerprintChanged                 // the record has a fingerprint that cannot be compared
	Unreadable                         // what is stored cannot be read
	Unavailable                        // the store does not answer, or the caller has gone; nothing ran in this call
	Unconfirmed                        // there is a record, which is pending in this process, or not confirmed by the replicas
	NotBegun                           // the key was claimed, and the run could not begin; the key may stay claimed for a lease
	CommitUnknown                      // it is not known yet whether this run's transaction was committed

	// What a door refuses before Begin:
	KeyMissing     // there is no key
	KeyInvalid     // the key is malformed
	KeyOfFuture    // the key was made in the future
	KeyFailed      // the key cannot be determined
	UserUnknown    // there is no user
	BodyTooLarge   // the input is too long
	BodyUnreadable // the input has not arrived as a whole

	KindCount // how many there are
)

// Outcome is what an observer is told. The doors have types of their own for it, with the same text.
type Outcome string

// The outcomes that code names. The others are in the table.
const (
	// Of a run:
	OutcomeExecuted    Outcome = "executed"
	OutcomeNotStored   Outcome = "not-stored"
	OutcomeFreed       Outcome = "freed"
	OutcomeRunUnknown  Outcome = "unknown"
	OutcomePanicked    Outcome = "panicked"
	OutcomeLeaseLost   Outcome = "lease-lost"
	OutcomeUnprotected Outcome = "unprotected"

	// Of a request that did not run:
	OutcomeReplayed         Outcome = "replayed"
	OutcomeInFlight         Outcome = "in-flight"
	OutcomeUnknown          Outcome = "outcome-unknown"
	OutcomeUnreadable       Outcome = "unreadable"
	OutcomeExpiredKey       Outcome = "expired-key"
	OutcomeStoreUnavailable Outcome = "store-unavailable"
)

// Answer is what a request of a Kind gets.
type Answer struct {
	Outcome Outcome
	Retry   bool // a retry may succeed
	HTTP    HTTP // zero if the request runs, or gets a product
	Call    Call // zero if once never refuses so
}

// HTTP is a problem (RFC 9457). Answers with one Type have the same Status and Title.
type HTTP struct {
	Status        int
	Type          string // after "urn:onceguard:problem:"
	Title, Detail string
	// The HTML page. Its reader has filled in a form, and does not know idempotency keys.
	Heading, Text string
}

// Call is what a function and a call of gRPC get. Answers with one Err have the same Call.
type Call struct {
	Err    error  // of package once; nil if only gRPC refuses so
	Code   uint32 // of gRPC
	Reason string // of gRPC's ErrorInfo
	Text   string // of gRPC's status, for developers of clients
}

// Answer returns the row of k.
func (k Kind) Answer() *Answer { return &answers[k] }

// CallOf returns the Call with err, which is an error of package once; nil if there is none.
func CallOf(err error) *Call {
	for i := range answers {
		if c := &answers[i].Call; c.Err == err {
			return c
		}
	}
	return nil
}

// The codes of gRPC.
const invalidArgument, failedPrecondition, aborted, internal, unavailable, unauthenticated = 3, 9, 10, 13, 14, 16

// The calls that several kinds have.
var (
	outcomeUnknown = Call{errors.New("once: it is not known whether this was done"), failedPrecondition, "OUTCOME_UNKNOWN",
		"it is not known whether an earlier call with this idempotency key took effect"}
	unreadable = Call{record.ErrUnreadable, internal, "RECORD_UNREADABLE", "what is stored for this idempotency key cannot be read"}
	noStore    = Call{errors.New("once: the store cannot tell whether this was done"), unavailable, "STORE_UNAVAILABLE",
		"the store cannot tell whether this call was made before"}
)

// answers has a row for each Kind but Begun and Own.
var answers = [KindCount]Answer{
	Unprotected: {Outcome: OutcomeUnprotected},
	Stored:      {Outcome: OutcomeReplayed},
	InFlight: {Outcome: OutcomeInFlight, Retry: true,
		HTTP: HTTP{409, "in-flight", "First request has no result yet",
			"A request with this idempotency key was received before and has no result yet. Repeat it later to get its result.",
			"We have received this already", "The form was sent more than once, and the first time has no result yet. It counts only once. " +
				"Reload this page in a moment to see the result."},
		Call: Call{errors.New("once: another call with this key has not ended"), aborted, "IN_FLIGHT",
			"a call with this idempotency key has not ended yet"},
	},
	Expired: {Outcome: OutcomeExpiredKey,
		HTTP: HTTP{400, "key-expired", "Idempotency key is too old",
			"This idempotency key is too old: the server no longer knows whether the request was processed before. It is not processed " +
				"now. Find out whether it was processed before you use a new key.",
			"This form is too old", "We no longer know whether you have sent this form before. It is not processed now. Please check, or " +
				"ask us, before you send a new one."},
	},
	NoRecord: {Outcome: "not-replayable", Retry: true,
		HTTP: HTTP{503, "run-failed", "The first request has failed",
			"The first request with this idempotency key ended and left no response. Repeat it to have it processed.",
			"That did not work", "The form was received, and something went wrong before there was a result. Reload this page to try again."},
		Call: Call{errors.New("once: the other call with this key has ended, and there is no result of it"), unavailable, "RUN_FAILED",
			"the other call with this idempotency key has left no response"},
	},
	Reused: {Outcome: "reused",
		HTTP: HTTP{422, "key-reused", "Idempotency key is already used",
			"This idempotency key was used for another request. Use a new key for a new request.",
			"You have already sent this form", "You have already sent this form with different details, and the first version counts. To " +
				"send a new one, go back and reload the page first."},
		Call: Call{errors.New("once: the key is used for another input"), invalidArgument, "KEY_REUSED",
			"this idempotency key belongs to another request"},
	},
	NotStored: {Outcome: "not-replayable",
		HTTP: HTTP{409, "response-not-stored", "Response was not kept",
			"The request with this idempotency key was processed, but its response was not kept. It is not processed again.",
			"This has already been processed", "The form was processed when you sent it before. Its result cannot be shown here again."},
		Call: Call{errors.New("once: this was done, and its result was not kept"), failedPrecondition, "RESPONSE_NOT_STORED",
			"an earlier call with this idempotency key took effect, and its response was not kept"},
	},
	UnknownNotStored: {Outcome: OutcomeUnknown, Call: outcomeUnknown,
		HTTP: HTTP{409, "response-not-stored", "Response was not kept",
			"A request with this idempotency key was started, and it is not known whether it took effect. Its response was not kept. It is " +
				"not processed again.",
			"We do not know whether this has worked", "The form was received, and something went wrong before there was a result. It is not " +
				"processed again by itself. Please check, or ask us, before you send a new one."},
	},
	Unknown: {Outcome: OutcomeUnknown, Call: outcomeUnknown,
		HTTP: HTTP{409, "outcome-unknown", "Outcome is unknown",
			"A request with this idempotency key was started, and it is not known whether it took effect. It is not processed again.",
			"We do not know whether this has worked", "The form was received, and something went wrong before there was a result. It is not " +
				"processed again by itself. Please check, or ask us, before you send a new one."},
	},
	UnknownYet: {Outcome: OutcomeUnknown, Retry: true, Call: outcomeUnknown,
		HTTP: HTTP{409, "outcome-unknown", "Outcome is unknown",
			"A request with this idempotency key was started, and it is not known yet whether it took effect. It is not processed again " +
				"before that is known. Repeat it later with the same key to find out.",
			"We do not know yet whether this has worked", "The form was received, and something went wrong before there was a result. We " +
				"are finding out. Reload this page in a few minutes to see the result. It will not happen twice."},
	},
	FingerprintChanged: {Outcome: "fingerprint-changed", Call: unreadable,
		HTTP: HTTP{409, "fingerprint-changed", "Requests cannot be compared",
			"A request with this idempotency key was processed, but the server now tells requests apart by another rule, so it cannot tell " +
				"whether this is the same request. It is not processed again. Use a new key for a new request.",
			"This has already been processed", "A form from this page was processed before, and we cannot tell whether it was the same. " +
				"Please check before you send a new one."},
	},
	Unreadable: {Outcome: OutcomeUnreadable, Call: unreadable,
		HTTP: HTTP{500, "record-unreadable", "Stored response is unreadable",
			"What is stored for this idempotency key cannot be read, so it is not known what the request did. It is not processed again.",
			"We do not know whether this has worked", "The form was received before, and its result cannot be shown. It is not processed " +
				"again. Please check, or ask us, before you send a new one."},
	},
	Unavailable: {Outcome: OutcomeStoreUnavailable, Retry: true, Call: noStore,
		HTTP: HTTP{503, "store-unavailable", "Idempotency store is unavailable",
			"The server cannot tell whether this request is a repetition, so it did not process it. Repeat it later.",
			"Please try again in a moment", "We cannot accept the form right now. Reload this page in a moment to send it again."},
	},
	Unconfirmed: {Outcome: OutcomeStoreUnavailable, Retry: true, Call: noStore,
		HTTP: HTTP{503, "store-unavailable", "Idempotency store is unavailable",
			"A request with this idempotency key was processed, but the server cannot confirm yet that its response is stored safely. It is " +
				"not processed again. Repeat it later to get its response.",
			"This has already been processed", "Its result cannot be shown yet. Reload this page in a moment to see it."},
	},
	// The time in the detail is that of a lease.
	NotBegun: {Outcome: OutcomeStoreUnavailable, Retry: true, Call: noStore,
		HTTP: HTTP{503, "store-unavailable", "Idempotency store is unavailable",
			"The server could not start to process this request, so nothing was done. Repeat it later. For up to %v a repetition may be " +
				"answered with 409.",
			"Please try again in a moment", "We cannot accept the form right now. Reload this page in a moment to send it again."},
	},
	CommitUnknown: {Outcome: OutcomeRunUnknown, Retry: true,
		HTTP: HTTP{503, "commit-unknown", "Outcome is not known yet",
			"It is not known yet whether this request took effect. Repeat it with the same key to find out.",
			"We do not know yet whether this went through", "Reload this page in a moment to find out. It will not happen twice."},
		Call: Call{errors.New("once: this ran, and it is not known yet whether it took effect"), unavailable, "NOT_KNOWN_YET",
			"it is not known yet whether this call took effect"},
	},
	KeyMissing: {Outcome: "missing-key",
		HTTP: HTTP{400, "key-missing", "Idempotency key is missing",
			"This operation must carry an idempotency key, so that it can be repeated safely.",
			"This form cannot be sent",
			"The page that you sent it from may be out of date. Nothing was done. Go back, reload the page and send the form again."},
		Call: Call{nil, invalidArgument, "KEY_MISSING", "the metadata idempotency-key is missing"},
	},
	KeyInvalid: {Outcome: "invalid-key",
		HTTP: HTTP{400, "key-invalid", "Idempotency key is invalid",
			"An idempotency key has 1 to 255 printable ASCII characters and must be sent exactly once. In a header it stands in double " +
				"quotes, or bare if it has no spaces, quotes, backslashes, commas or semicolons.",
			"This form cannot be sent",
			"The page that you sent it from may be out of date. Nothing was done. Go back, reload the page and send the form again."},
		Call: Call{errors.New("once: the key is invalid"), invalidArgument, "KEY_INVALID", "the metadata idempotency-key is malformed"},
	},
	KeyOfFuture: {Outcome: "invalid-key",
		HTTP: HTTP{400, "key-invalid", "Idempotency key is invalid",
			"This idempotency key was made more than an hour in the future. Nothing was done. Set the clock of the client right, and use a " +
				"new key.",
			"This form cannot be sent",
			"The clock of your device seems to be wrong. Nothing was done. Set it right, reload the page and send the form again."},
	},
	KeyFailed: {Outcome: "key-failed",
		HTTP: HTTP{500, "key-failed", "Idempotency key cannot be determined",
			"The server failed to determine the idempotency key. Nothing was done.",
			"Something went wrong", "The fault is ours. Nothing was done. Please try again later."},
	},
	UserUnknown: {Outcome: "no-user",
		HTTP: HTTP{401, "user-unknown", "User is unknown",
			"This operation needs an authenticated user. Nothing was done.",
			"Please sign in", "You have to be signed in for this. Nothing was done."},
		Call: Call{nil, unauthenticated, "USER_UNKNOWN", "the caller is not known"},
	},
	BodyTooLarge: {Outcome: "too-large",
		HTTP: HTTP{413, "body-too-large", "Request body is too large",
			"The body is longer than this operation accepts. Nothing was done.",
			"This is too large", "What you sent is larger than we can accept. Nothing was done."},
	},
	BodyUnreadable: {Outcome: "body-unreadable", Retry: true,
		HTTP: HTTP{400, "body-unreadable", "Request body cannot be read",
			"The body ended early or is malformed. Nothing was done.",
			"We did not receive everything",
			"The connection was interrupted while you sent the form. Nothing was done. Reload this page to send it again."},
	},
}
