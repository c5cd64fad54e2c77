package lock

import "errors"

var (
	// ErrHeld says that Acquire or Wait spent its budget and somebody else still holds the key.
	ErrHeld = errors.New("lock: the key is held")

	// ErrNotReplicated says that what was asked for was not on as many replicas as [WithReplicas] wants, in its time.
	// A lease was then not granted, or not renewed, or a value may be there or not.
	ErrNotReplicated = errors.New("lock: not replicated")

	// ErrLost says that the lease is over: the key went away or is somebody else's by now, or the lease was released
	// or settled before. It is the cause of [Lease.Context] when the lease ended although nobody ended it.
	ErrLost = errors.New("lock: the lease is lost")

	// ErrSettled says that TryAcquire or Acquire met a key that holds a value, left there by [Lease.Settle].
	ErrSettled = errors.New("lock: the key holds a value")

	// ErrForeign says that the key holds something that this package, in this version, did not write: another type,
	// another program's value, a newer format. It was left as it is.
	ErrForeign = errors.New("lock: the key holds a foreign value")

	// ErrClosed says that the Locker was closed: it takes no further key.
	ErrClosed = errors.New("lock: the locker is closed")
)
