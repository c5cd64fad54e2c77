package once

import (
	"errors"
	"time"

	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/lock"
)

// Outcome names what happened to a call of [Do]. The words are those of package middleware.
type Outcome string

// Outcomes of a run.
const (
	// Executed: the function ran, and its value or error is stored.
	Executed Outcome = "executed"
	// NotStored: the function ran, and its result was not or, if Err is set, could not be stored.
	NotStored Outcome = "not-stored"
	// Freed: the function ran and returned an error, which is not stored: the next call runs.
	Freed Outcome = "freed"
	// Unsure: it is not known whether the function took effect; Err is the reason.
	Unsure Outcome = "unknown"
	// Panicked: the function panicked or called runtime.Goexit, so it is not known whether it took effect.
	Panicked Outcome = "panicked"
	// LeaseLost: the function ran, and another call, an operator or another program took its key before the end. Both may
	// have taken effect.
	LeaseLost Outcome = "lease-lost"
	// Unprotected: the function ran without Redis ([WithFailOpen]). Err is why.
	Unprotected Outcome = "unprotected"
)

// Outcomes of a duplicate.
const (
	// Replayed: the stored value or error was returned.
	Replayed Outcome = "replayed"
	// InFlight: [ErrInFlight]. Err is set if the call was not allowed to wait, or Redis failed during the wait.
	InFlight Outcome = "in-flight"
	// Reused: [ErrReused].
	Reused Outcome = "reused"
	// NotReplayable: [ErrNotStored] or, for a waiter, [ErrFailed].
	NotReplayable Outcome = "not-replayable"
	// OutcomeUnknown: [ErrOutcomeUnknown].
	OutcomeUnknown Outcome = "outcome-unknown"
	// Unreadable: [ErrUnreadable]. Err is the reason.
	Unreadable Outcome = "unreadable"
)

// Outcomes of a call that was refused before it could run. Nothing ran.
const (
	// InvalidKey: [ErrInvalidKey]. Err is the reason.
	InvalidKey Outcome = "invalid-key"
	// StoreUnavailable: [ErrUnavailable].
	StoreUnavailable Outcome = "store-unavailable"
)

// Event is what [WithObserver] reports about one call of [Do].
type Event struct {
	Outcome   Outcome
	Operation string // of the Key
	Key       string // the storage key: the Key as it stands in Redis, hashed; empty if the Key is invalid
	Failed    bool   // the function has returned an error, now or in the run whose error is returned again
	Pending   bool   // the result is not stored yet: storing goes on in the background (lock.ErrPending)

	// Err is why something failed in Redis, the journal or the codec, or why an outcome is Unsure. Of the function's
	// own errors, Err has only the one that is marked [Unknown], without what wraps the mark.
	Err error

	// Size is the length in bytes of the record of the result, as it is stored: encrypted, compressed. It is 0 if no
	// record was stored or replayed.
	Size int
	// Age is the time since the replayed result was completed, by the wall clocks of two processes. It is never
	// negative, and 0 if none was replayed.
	Age time.Duration
	// FirstRunning and FirstEnded are those of [Refused], if Outcome is Reused.
	FirstRunning bool
	FirstEnded   time.Time

	// The phases of the call, in the order of time. They do not overlap. A phase that did not happen is zero.
	Claim   Phase // the key was claimed in Redis, or found to be taken
	Wait    Phase // WithWait: for another call with the same key
	Journal Phase // WithJournal: the journal was asked whether the run may begin, or how an earlier one ended
	Run     Phase // the function ran, protected or not
	Settle  Phase // from the function's return: the result was stored, in the journal too, or the key was freed
}

// Phase is a part of the time that a call took.
type Phase struct {
	Start    time.Time // with a monotonic reading; zero if the phase did not happen
	Duration time.Duration
}

// report calls the observer with the Event of the result.
func (c *call) report(result *run.Result, failed bool) {
	e := Event{
		Outcome: Outcome(result.Outcome), Failed: failed, Err: result.Err, Size: result.Size, Settle: Phase(result.Settle),
		FirstRunning: result.First.Running, FirstEnded: result.First.Ended,
	}
	if result.Kind == run.Stored {
		e.Age = max(0, time.Since(result.Record.Completed))
	}
	c.emit(e)
}

// emit completes the Event and calls the observer.
func (c *call) emit(e Event) {
	if c.observe == nil {
		return
	}
	p := &c.run.Phases
	e.Operation, e.Key, e.Err = c.operation, c.run.StorageKey, unmark(e.Err)
	e.Claim, e.Wait, e.Journal, e.Run = Phase(p.Claim), Phase(p.Wait), Phase(p.Journal), Phase(p.Operation)
	e.Pending = errors.Is(e.Err, lock.ErrPending)
	c.observe(c.ctx, e)
}
