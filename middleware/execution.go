package middleware

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrCommitted says that a key can no longer be freed: a byte of the response has left, or the handler has asked to
// keep it.
var ErrCommitted = errors.New("middleware: the response is committed")

// Execution is what a protected handler can ask and say about its own run. Its methods are safe for concurrent use,
// until the handler returns; those of a nil Execution do nothing.
type Execution struct {
	key   string
	fence int64      // 0: the Locker does not number its leases
	outer *Execution // of the middleware around this one, under another key

	mu        sync.Mutex
	keep      bool
	discard   bool
	committed bool
	retention time.Duration
}

type executionKey struct{}

// FromContext returns the run that ctx belongs to, nil when it is not a protected one.
func FromContext(ctx context.Context) *Execution {
	e, _ := ctx.Value(executionKey{}).(*Execution)
	return e
}

// Key returns the key as it stands in Redis, hashed.
func (e *Execution) Key() string {
	if e == nil {
		return ""
	}
	return e.key
}

// Fence returns the fencing number of the run's lease, for a resource that refuses numbers lower than one it has seen.
// It is 0 where the Locker does not number its leases.
func (e *Execution) Fence() int64 {
	if e == nil {
		return 0
	}
	return e.fence
}

// Keep stores this response whatever its status is: the effect is there, so the key must not be freed.
func (e *Execution) Keep() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keep, e.discard = true, false
}

// Discard stores nothing and frees the key when the handler returns: nothing has happened, a retry shall run. It
// returns [ErrCommitted] once a byte of the response has left, and after Keep; and it is void when a byte leaves later.
func (e *Execution) Discard() error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.committed || e.keep {
		return ErrCommitted
	}
	e.discard = true
	return nil
}

// Retain sets how long this response is replayed, instead of [WithRetention]. A time below a millisecond is ignored.
func (e *Execution) Retain(d time.Duration) {
	if e == nil || d < time.Millisecond {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.retention = d
}

// commit says that a byte of the response has left.
func (e *Execution) commit() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.committed, e.discard = true, false
}

// said is what the handler has asked for by the time that it is over.
type said struct {
	never     bool // the key must not be freed
	discard   bool
	retention time.Duration
}

func (e *Execution) said() said {
	e.mu.Lock()
	defer e.mu.Unlock()
	return said{never: e.committed || e.keep, discard: e.discard, retention: e.retention}
}

// runs tells whether e, or a run around it, has this key.
func (e *Execution) runs(key string) bool {
	for ; e != nil; e = e.outer {
		if e.key == key {
			return true
		}
	}
	return false
}
