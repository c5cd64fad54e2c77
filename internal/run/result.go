package run

import (
	"time"

	"github.com/onceguard/onceguard/internal/record"
)

// Kind is what a door does next: run the operation, hand out a product or a record, or answer why there is none.
type Kind uint8

const (
	Begun              Kind = iota // run the operation
	Unprotected                    // run the operation without protection: the store does not answer, and Policy.FailOpen is set
	Own                            // from Conclude: hand out the run's own product
	Stored                         // hand out Result.Record
	InFlight                       // another run with this key has not ended
	Expired                        // the key is too old, and nothing is stored under it: nothing ran
	NoRecord                       // the run that was waited for has ended without a record: a repetition may run
	Reused                         // the key belongs to another input
	NotStored                      // the run has ended, and its product was not kept
	UnknownNotStored               // the same, and it is not known whether it took effect
	Unresolved                     // it is not known whether an earlier run took effect
	FingerprintChanged             // the record has a fingerprint that cannot be compared
	Unreadable                     // what is stored cannot be read
	Unavailable                    // the store does not answer; nothing ran
	Unconfirmed                    // there is a record, which is pending in this process, or not confirmed by the replicas
	NotBegun                       // the key was claimed, and the run could not begin; the key may stay claimed for a lease
	CommitUnknown                  // it is not known yet whether this run's transaction was committed

	KindCount // how many there are, for tables by Kind
)

// Outcome is what an observer is told. The doors have types of their own for it, with the same text.
type Outcome string

const (
	// Of a run:
	OutcomeExecuted    Outcome = "executed"
	OutcomeNotStored   Outcome = "not-stored"
	OutcomeFreed       Outcome = "freed"
	OutcomeRunUnknown  Outcome = "unknown"
	OutcomePanicked    Outcome = "panicked"
	OutcomeLeaseLost   Outcome = "lease-lost"
	OutcomeUnprotected Outcome = "unprotected"

	// Of a duplicate:
	OutcomeReplayed           Outcome = "replayed"
	OutcomeInFlight           Outcome = "in-flight"
	OutcomeReused             Outcome = "reused"
	OutcomeNotReplayable      Outcome = "not-replayable"
	OutcomeUnresolved         Outcome = "outcome-unknown"
	OutcomeFingerprintChanged Outcome = "fingerprint-changed"
	OutcomeUnreadable         Outcome = "unreadable"

	// Of a request that was refused before it could run:
	OutcomeExpiredKey       Outcome = "expired-key"
	OutcomeStoreUnavailable Outcome = "store-unavailable"
)

// outcomes are the outcomes of the kinds that refuse or replay.
var outcomes = [KindCount]Outcome{
	Unprotected:        OutcomeUnprotected,
	Stored:             OutcomeReplayed,
	InFlight:           OutcomeInFlight,
	Expired:            OutcomeExpiredKey,
	NoRecord:           OutcomeNotReplayable,
	Reused:             OutcomeReused,
	NotStored:          OutcomeNotReplayable,
	UnknownNotStored:   OutcomeUnresolved,
	Unresolved:         OutcomeUnresolved,
	FingerprintChanged: OutcomeFingerprintChanged,
	Unreadable:         OutcomeUnreadable,
	Unavailable:        OutcomeStoreUnavailable,
	Unconfirmed:        OutcomeStoreUnavailable,
	NotBegun:           OutcomeStoreUnavailable,
	CommitUnknown:      OutcomeRunUnknown,
}

// Result is what Begin, Wait and Conclude return.
type Result struct {
	Kind    Kind
	Outcome Outcome // empty if Kind is Begun
	Err     error   // for an observer: why something failed, or why the outcome is what it is

	Record     record.Record // if Kind is Stored or NotStored; of the latter the payload may be empty
	Size       int           // of the record in bytes, as it is stored or pending; 0 if there is none
	Settle     Phase         // from Conclude: from the end of the operation until the key was settled
	RetryAfter time.Duration // if Kind is InFlight; or Unresolved, and 0 means that no repetition helps
	claimedAt  time.Time     // if Kind is InFlight: by the run that has the key
	inJournal  bool          // if Kind is InFlight: the journal has the run's row, and perhaps Redis no longer its claim
}

// refuse returns a Result without a record.
func refuse(kind Kind, err error) Result {
	return Result{Kind: kind, Outcome: outcomes[kind], Err: err}
}

// isMismatch reports whether the key belongs to another input, or to one that cannot be compared.
func (r *Result) isMismatch() bool { return r.Kind == Reused || r.Kind == FingerprintChanged }

// Phases are the parts of the time that a request takes until its operation has ended, in the order of time. They do not
// overlap. A phase that did not happen is zero.
type Phases struct{ Claim, Wait, Journal, Operation Phase }

// Phase is a part of the time that a request takes.
type Phase struct {
	Start    time.Time // with a monotonic reading
	Duration time.Duration
}

// PhaseSince returns the phase from start to now.
func PhaseSince(start time.Time) Phase { return Phase{start, time.Since(start)} }

// End returns when the phase ended.
func (p Phase) End() time.Time { return p.Start.Add(p.Duration) }
