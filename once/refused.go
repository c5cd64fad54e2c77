package once

import (
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/internal/run"
)

// Why [Do] neither ran its function nor returned a stored result: [Refused].Reason.
var (
	// ErrInFlight means that another call with this key still runs, or that its process died less than a lease ago or, with
	// an intent journal, less than [WithMaxDuration] after the call began. Retryable.
	ErrInFlight = errors.New("once: another call with this key has not ended")
	// ErrFailed means that the call that this one waited for ([WithWait]) has ended, and that there is no result: it has
	// returned an error, or its result has expired. Retryable.
	ErrFailed = errors.New("once: the other call with this key has ended, and there is no result of it")
	// ErrUnavailable means that Redis or the journal did not answer, that the Locker is closed, or that ctx was done.
	// f was not called in this call. Retryable.
	ErrUnavailable = errors.New("once: the store cannot tell whether this was done")
	// ErrNotKnownYet means that f ran in this call, and that it is not known yet whether it took effect: its COMMIT got no
	// reply, or its key was taken and what it then held was not confirmed. Retryable: a later call with the key finds out.
	// The effect must not be tried in another way.
	ErrNotKnownYet = errors.New("once: this ran, and it is not known yet whether it took effect")
	// ErrReused means that the key belongs to a call with another [Key].Input.
	ErrReused = errors.New("once: the key is used for another input")
	// ErrNotStored means that an earlier call took effect, and its value was too long or could not be encoded.
	ErrNotStored = errors.New("once: this was done, and its result was not kept")
	// ErrOutcomeUnknown means that it is not known whether an earlier call took effect: its process died, it panicked,
	// or it returned [Unknown]. [Guard.Resolve] ends that. Retryable if an intent journal has the call's row, which a sweep
	// ends as well.
	ErrOutcomeUnknown = errors.New("once: it is not known whether this was done")
	// ErrUnreadable means that what is stored cannot be read: it is damaged, another kind of run wrote it, no key of
	// [WithEncryption] decrypts it, or T cannot take the value.
	ErrUnreadable = record.ErrUnreadable
	// ErrInvalidKey means that a part of the [Key] is empty, or that its Input has no JSON. Redis was not asked.
	ErrInvalidKey = errors.New("once: the key is invalid")
)

// reasons has a row for each kind of refusal that Begin, Wait and Conclude return, but for run.Expired: a [Key] has no age.
var reasons = [run.KindCount]error{
	run.InFlight:           ErrInFlight,
	run.NoRecord:           ErrFailed,
	run.Reused:             ErrReused,
	run.NotKept:            ErrNotStored,
	run.UnknownNotKept:     ErrOutcomeUnknown,
	run.Unknown:            ErrOutcomeUnknown,
	run.UnknownYet:         ErrOutcomeUnknown,
	run.FingerprintChanged: ErrUnreadable,
	run.Unreadable:         ErrUnreadable,
	run.Unavailable:        ErrUnavailable,
	run.Unconfirmed:        ErrUnavailable,
	run.NotBegun:           ErrUnavailable,
	run.CommitUnknown:      ErrNotKnownYet,
}

// Refused is the error of a [Do] that neither ran its function nor returned a stored result. With errors.Is it is its
// Reason, and also the error of Redis, the journal or ctx behind it, if there is one.
//
// In two cases the function did run. One is [ErrNotKnownYet]. In the other one, another call has taken the key from it,
// which happens after a pause or a partition that was longer than the lease. Both may have taken effect. The call then
// gets what the key holds, or a Refused, but never ErrUnavailable.
type Refused struct {
	Reason     error         // one of this package's errors
	RetryAfter time.Duration // when a retry makes sense, from now; 0 unless Retryable
	Retryable  bool          // a later call may succeed
	Key        string        // the key as it stands in Redis, hashed, as in Event.Key; empty after ErrInvalidKey

	// After ErrReused: whether the call that has the key still runs, or when it ended, by the wall clock of its process.
	// Both are zero if it is not known how it ended.
	FirstRunning bool
	FirstEnded   time.Time

	cause error // nil if there is none; Unwrap returns it as a foreign
}

// Error returns the texts of Reason and of the error behind it.
func (r *Refused) Error() string {
	switch {
	case r.cause == nil:
		return r.Reason.Error()
	case errors.Is(r.cause, r.Reason):
		return r.cause.Error()
	}
	return fmt.Sprintf("%v: %v", r.Reason, r.cause)
}

// errRetryable is what errors.Is finds in an error that has a Retryable Refused in it, also in one of an inner Do.
var errRetryable = errors.New("once: a later call may succeed")

// Unwrap returns Reason and the error behind it.
func (r *Refused) Unwrap() []error {
	behind := []error{r.Reason}
	if r.Retryable {
		behind = append(behind, errRetryable)
	}
	if r.cause != nil {
		behind = append(behind, foreignOf(r.cause))
	}
	return behind
}

// StoredError is the error of a [Do] whose key has a stored error: that of [Final] or, with [WithAtMostOnce] and with an
// intent journal, any error without a mark. Only its text was stored.
type StoredError struct{ text string }

// Error returns the text.
func (e *StoredError) Error() string { return e.text }

const retryPause = time.Second

// newRefused returns the error of a result that has neither a run nor a record.
func newRefused(result *run.Result, storageKey string) *Refused {
	r := &Refused{
		Reason: reasons[result.Kind], Retryable: result.Kind.Answer().Retry, Key: storageKey, cause: result.Err,
		FirstRunning: result.First.Running, FirstEnded: result.First.Ended,
	}
	if r.Reason == ErrUnavailable && result.Outcome == run.OutcomeLeaseLost { // the function has run
		r.Reason = ErrNotKnownYet
	}
	if r.Retryable {
		r.RetryAfter = max(retryPause, result.RetryAfter)
	}
	return r
}
