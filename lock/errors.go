package lock

import (
	"errors"
	"fmt"

	"github.com/onceguard/onceguard/lock/internal/lease"
	"github.com/onceguard/onceguard/lock/internal/pipeline"
	"github.com/onceguard/onceguard/lock/internal/store"
)

var (
	// ErrHeld means that the key is still held (for Acquire: held or abandoned), and that the budget of Acquire or Wait
	// ([WithRetry]) is spent or its context is done.
	ErrHeld = errors.New("lock: the key is held")

	// ErrNotReplicated means that fewer replicas than [WithReplicas] wants acknowledged a write in time. A lease was
	// not granted or not renewed, the release of a claim under a hold was not confirmed, or a value may be stored or
	// not.
	ErrNotReplicated = pipeline.ErrNotReplicated

	// ErrPending means that a value is not stored yet, and that [Lease.Settle] is retried in the background.
	ErrPending = lease.ErrPending

	// ErrGivenUp means that Close gave up values that could not be stored: see [ErrPending].
	ErrGivenUp = lease.ErrGivenUp

	// ErrUnreleased means that Close left claims that are to be released: it could not release them, or a command may still
	// write one under a hold again. See [Locker.Claim].
	ErrUnreleased = store.ErrUnreleased

	// ErrLost means that the lease is over: the key is gone or another holder has it, or the lease was released or
	// settled before. It is the cause of [Lease.Context] if the lease ended without Release or Settle.
	ErrLost = store.ErrLost

	// ErrSettled means that TryAcquire or Acquire found a value under the key, stored by [Lease.Settle]. With
	// [WithReplicas] Claim and Wait return it too, with the reason, if a value could not be confirmed to be on enough
	// replicas. All of these also return it while a value is pending ([ErrPending]) and Redis does not answer.
	ErrSettled = store.ErrSettled

	// ErrForeign means that the key holds what this version of the package did not write: another type, another
	// program's value, a newer format. It was left as it is.
	ErrForeign = store.ErrForeign

	// ErrNotStorageKey means that a text is not a storage key of the Locker: it has another namespace, or is a fence
	// counter or a raw key. Nothing was sent to Redis.
	ErrNotStorageKey = store.ErrNotStorageKey

	// ErrChanged means that a key does not hold the claim or value that the token names, or that the token is malformed.
	// The key was left as it is.
	ErrChanged = store.ErrChanged

	// ErrLive means that a claim's lease has not run out, so that its holder may be at work. It was left as it is.
	ErrLive = store.ErrLive

	// ErrNoRedis means that the Locker is without Redis, see [None]: it grants nothing.
	ErrNoRedis = errors.New("lock: the locker is without Redis")

	// ErrClosed means that the Locker is closed: it takes no more keys.
	ErrClosed = errors.New("lock: the locker is closed")
)

// WaitError is the error of a [Locker.Wait] that ended after a poll that failed, so that the caller does not know what
// the key holds.
type WaitError struct {
	Err  error // why the wait ended: ErrHeld, the cause of its context, or both
	Look error // why the last poll failed
}

// Error returns both errors.
func (e *WaitError) Error() string { return fmt.Sprintf("%v; the last look: %v", e.Err, e.Look) }

// Unwrap returns both errors, for [errors.Is].
func (e *WaitError) Unwrap() []error { return []error{e.Err, e.Look} }
