package run

import (
	"time"

	"github.com/onceguard/onceguard/internal/record"
)

// Result is what Begin, Wait and Conclude return.
type Result struct {
	Kind    Kind
	Outcome Outcome // empty if Kind is Begun
	Err     error   // for an observer: why something failed, or why the outcome is what it is

	Record       record.Record // if Kind is Stored or NotKept; of the latter the payload may be empty
	Size         int           // of the record in bytes, as it is stored or pending; 0 if there is none
	Settle       Phase         // from Conclude: from the end of the operation until the key was settled
	RetryAfter   time.Duration // if Kind is InFlight or UnknownYet
	First        First         // if Kind is Reused
	claimedAt    time.Time     // if Kind is InFlight: by the run that has the key
	rowInJournal bool          // if Kind is InFlight: the journal has the run's row, and perhaps Redis no longer its claim
}

// First is what a request under a key that belongs to another one is told of that one. It is zero if it is not known how
// that one has ended.
type First struct {
	Running bool      // it has not ended
	Ended   time.Time // when it ended, in UTC, by the wall clock of its process; zero if that is not known
}

// reused returns the Result of a request whose key belongs to another one.
func reused(first First) Result {
	r := refuse(Reused, nil)
	r.First = first
	return r
}

// refuse returns a Result without a record.
func refuse(kind Kind, err error) Result {
	return Result{Kind: kind, Outcome: answers[kind].Outcome, Err: err}
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

func (p Phase) end() time.Time { return p.Start.Add(p.Duration) }
