package lock

import (
	"errors"
	"fmt"

	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/pipeline"
	"github.com/onceguard/onceguard/lock/internal/store"
)

var (
	// ErrHeld says that Acquire or Wait spent its budget and somebody else still holds the key.
	ErrHeld = errors.New("lock: the key is held")

	// ErrNotReplicated says that what was asked for was not on as many replicas as [WithReplicas] wants, in its time.
	// A lease was then not granted, or not renewed, or a value may be there or not.
	ErrNotReplicated = pipeline.ErrNotReplicated

	// ErrPending says that a value could not be stored yet, and that [Lease.Settle] goes on in the background.
	ErrPending = lease.ErrPending

	// ErrGivenUp says that Close has given up values that could not be stored: see [ErrPending].
	ErrGivenUp = lease.ErrGivenUp

	// ErrLost says that the lease is over: the key went away or now belongs to somebody else, or the lease was released
	// or settled before. It is the cause of [Lease.Context] when the lease ended although nobody ended it.
	ErrLost = store.ErrLost

	// ErrSettled says that TryAcquire or Acquire met a key that holds a value, left there by [Lease.Settle]. With
	// [WithReplicas] it also says, together with the error that kept it from being confirmed, that a value was met which
	// may not be on enough replicas: it is not handed out.
	ErrSettled = store.ErrSettled

	// ErrForeign says that the key holds something that this package, in this version, did not write: another type,
	// another program's value, a newer format. It was left as it is.
	ErrForeign = store.ErrForeign

	// ErrClosed says that the Locker was closed: it takes no further key.
	ErrClosed = errors.New("lock: the locker is closed")
)

// WaitError is the error of a [Locker.Wait] that has ended while it could not tell what the key holds.
type WaitError struct {
	Err  error // why it ended: ErrHeld, or the cause of its context's end, or both
	Look error // why its last look failed
}

// Error returns both errors.
func (e *WaitError) Error() string { return fmt.Sprintf("%v; the last look: %v", e.Err, e.Look) }

// Unwrap returns both errors, for [errors.Is].
func (e *WaitError) Unwrap() []error { return []error{e.Err, e.Look} }
