package once

import (
	"time"

	"github.com/onceguard/onceguard/internal/run"
)

// Outcome names what happened to a call of [Do]. It is the type of package middleware's Outcome, and the constants there
// have these words.
//
// Of a run:
//
//   - "executed": the function ran, and its value or error is stored.
//   - "not-stored": the function ran, and its result was not or, if Err is set, could not be stored.
//   - "freed": the function ran and returned an error, which is not stored: the next call runs.
//   - "unknown": it is not known whether the function took effect. Err is the reason.
//   - "panicked": the function panicked or called runtime.Goexit, so it is not known whether it took effect.
//   - "lease-lost": the function ran, and another call, an operator or another program took its key before the end. Both
//     may have taken effect.
//   - "unprotected": the function ran without Redis ([WithFailOpen]). Err is why.
//
// Of a duplicate:
//
//   - "replayed": the stored value or error was returned.
//   - "in-flight": [ErrInFlight]. Err is set if the call was not allowed to wait, or Redis failed during the wait.
//   - "reused": [ErrReused].
//   - "not-replayable": [ErrNotStored] or, for a waiter, [ErrFailed].
//   - "outcome-unknown": [ErrOutcomeUnknown].
//   - "unreadable": [ErrUnreadable]. Err is the reason.
//
// Of a call that was refused before it could run:
//
//   - "invalid-key": [ErrInvalidKey]. Err is the reason.
//   - "store-unavailable": [ErrUnavailable].
type Outcome = run.Outcome

// Phase is a part of the time that a call took: its Start, with a monotonic reading, and its Duration. It is zero if the
// phase did not happen. It is the type of package middleware's Phase.
type Phase = run.Phase

// Event is what [WithObserver] reports about one call of [Do].
type Event struct {
	Outcome   Outcome
	Operation string // of the Key
	Key       string // the storage key: the Key as it stands in Redis, hashed; empty if the Key is invalid

	// Err is why something failed in Redis, the journal or the codec, or why an outcome is unknown. It is
	// lock.ErrPending if the result is not stored yet, and storing goes on in the background. Of the function's own
	// errors, Err has only the one that is marked [Unknown], without what wraps the mark.
	Err error

	// Size is the length in bytes of the record of the result, as it is stored: encrypted, compressed. It is 0 if no
	// record was stored or replayed.
	Size int
	// Age is the time since the replayed result was completed, by the wall clocks of two processes. It is never
	// negative, and 0 if none was replayed.
	Age time.Duration

	// The phases of the call, in the order of time. They do not overlap. A phase that did not happen is zero.
	Claim   Phase // the key was claimed in Redis, or found to be taken
	Wait    Phase // WithWait: for another call with the same key
	Journal Phase // WithJournal: the journal was asked whether the run may begin, or how an earlier one ended
	Run     Phase // the function ran, protected or not
	Settle  Phase // from the function's return: the result was stored, in the journal too, or the key was freed
}

// report calls the observer with the Event of the result.
func (c *call) report(result *run.Result) {
	e := Event{
		Outcome: result.Outcome, Err: result.Err, Size: result.Size, Settle: result.Settle,
	}
	if result.Kind == run.Stored {
		e.Age = max(0, time.Since(result.Record.Completed))
	}
	c.emit(e)
}

// emit completes the Event and calls the observer.
func (c *call) emit(e Event) {
	c.reported = true
	if c.observe == nil {
		return
	}
	p := &c.run.Phases
	e.Operation, e.Key, e.Err = c.operation, c.run.StorageKey, unmark(e.Err)
	e.Claim, e.Wait, e.Journal, e.Run = p.Claim, p.Wait, p.Journal, p.Operation
	c.observe(c.ctx, e)
}
