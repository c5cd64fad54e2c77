package once

import (
	"context"
	"time"

	"github.com/onceguard/onceguard/internal/run"
)

// Execution is the run that a function of [Do] is in: what the function can ask and decide about it. Its methods may be
// called concurrently. A call after the function has returned has no effect. The methods of a nil Execution do nothing
// and return zero values.
type Execution struct {
	key     string
	fence   int64
	control *run.Control
	product *product
}

type executionKey struct{}

// FromContext returns the run that ctx belongs to: that of the innermost [Do]. It returns nil outside of a Do, and in
// one that runs unprotected ([WithFailOpen]).
func FromContext(ctx context.Context) *Execution {
	e, _ := ctx.Value(executionKey{}).(*Execution)
	return e
}

// Key returns the storage key: the [Key] as it stands in Redis, hashed. It is the same in every try, so it can be the
// key of a request to another service.
func (e *Execution) Key() string {
	if e == nil {
		return ""
	}
	return e.key
}

// Fence returns the fencing number of the run's lease, for a resource that refuses numbers lower than one it has seen.
// It is 0 if the Locker does not number its leases (lock.WithFencing).
func (e *Execution) Fence() int64 {
	if e == nil {
		return 0
	}
	return e.fence
}

// Retain sets how long this run's result is kept, instead of [WithRetention]. A time below a millisecond is ignored. With
// a transactional journal it is kept for at least [WithMaxDuration] and a minute: another run of the key may not have
// ended, and the row rolls it back.
func (e *Execution) Retain(d time.Duration) {
	if e != nil {
		e.control.Retain(d)
	}
}
