package run

// This file is the table of all that a request can get that does not run, or whose product is replaced. Each door has a
// table of its words for it.

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
	NotKept                            // the run has ended, and its product was not kept
	UnknownNotKept                     // the same, and it is not known whether it took effect
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

// Outcome is what an observer is told. The doors export it.
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

// Answer is what a request of a Kind gets. Its words are the doors': package problem has those of HTTP.
type Answer struct {
	Outcome Outcome
	Retry   bool // a retry may succeed
}

// Answer returns the row of k.
func (k Kind) Answer() *Answer { return &answers[k] }

// answers has a row for each Kind but Begun and Own.
var answers = [KindCount]Answer{
	Unprotected:        {OutcomeUnprotected, false},
	Stored:             {OutcomeReplayed, false},
	InFlight:           {OutcomeInFlight, true},
	Expired:            {OutcomeExpiredKey, false},
	NoRecord:           {"not-replayable", true},
	Reused:             {"reused", false},
	NotKept:            {"not-replayable", false},
	UnknownNotKept:     {OutcomeUnknown, false},
	Unknown:            {OutcomeUnknown, false},
	UnknownYet:         {OutcomeUnknown, true},
	FingerprintChanged: {"fingerprint-changed", false},
	Unreadable:         {OutcomeUnreadable, false},
	Unavailable:        {OutcomeStoreUnavailable, true},
	Unconfirmed:        {OutcomeStoreUnavailable, true},
	NotBegun:           {OutcomeStoreUnavailable, true},
	CommitUnknown:      {OutcomeRunUnknown, true},
	KeyMissing:         {"missing-key", false},
	KeyInvalid:         {"invalid-key", false},
	KeyOfFuture:        {"invalid-key", false},
	KeyFailed:          {"key-failed", false},
	UserUnknown:        {"no-user", false},
	BodyTooLarge:       {"too-large", false},
	BodyUnreadable:     {"body-unreadable", true},
}
