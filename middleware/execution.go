package middleware

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrCommitted says that a key can no longer be freed: a byte of the response has left, or the handler has called
// [Execution.Keep] or [Execution.Unknown].
var ErrCommitted = errors.New("middleware: the response is committed")

// Execution is what a protected handler can ask and say about its own run. Its methods may be called concurrently. They
// must not be called after the handler has returned; those of a nil Execution do nothing.
type Execution struct {
	key   string
	alias *string    // what Key returns in shadow; otherwise nil
	fence int64      // 0: the Locker does not number its leases
	outer *Execution // of the middleware around this one, under another key

	journaled *journaledRun // nil without a journal

	atMostOnce bool // only the handler itself may say that nothing has happened

	mu        sync.Mutex
	keep      bool
	discard   bool
	unknown   bool
	sent      bool // a part of the response, or its transaction is committed
	retention time.Duration
}

type executionKey struct{}

// FromContext returns the run that ctx belongs to, or nil if ctx belongs to no protected run.
func FromContext(ctx context.Context) *Execution {
	e, _ := ctx.Value(executionKey{}).(*Execution)
	return e
}

// Key returns the key as it stands in Redis, hashed. In shadow it is another one for each run ([WithShadow]).
func (e *Execution) Key() string {
	if e == nil {
		return ""
	}
	if e.alias != nil {
		return *e.alias
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

// Keep stores this response whatever its status is: the effect is there, so the key must not be freed. If both
// Keep and Unknown are called, the last call wins.
func (e *Execution) Keep() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keep, e.discard, e.unknown = true, false, false
}

// Unknown says that the handler does not know whether the effect is there: a COMMIT was sent, and no answer came. The
// response goes out as it is written and is not stored. The key is left as after a panic: a retry is answered with 409
// in-flight until the lease has run out, and then runs again, or with [WithAtMostOnce] is answered with 409
// outcome-unknown until the retention is over. Once a byte has left, a retry never runs, as after a panic too.
//
// Unknown overrides Discard, whichever is called first. If both Keep and Unknown are called, the last call wins.
func (e *Execution) Unknown() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unknown, e.keep = true, false
}

// Discard stores nothing and frees the key when the handler returns: nothing has happened, so a retry runs. It
// returns [ErrCommitted] once a byte of the response has left, and after Keep and Unknown; and a byte that is
// sent later cancels it.
func (e *Execution) Discard() error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sent || e.keep || e.unknown {
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

// sendObserver is an Execution as a [capture.SendObserver], so that Execution itself has no exported method Sending.
type sendObserver Execution

// Sending makes Discard fail from now on, and undoes one that was called: a part of the response is about to be sent.
func (e *sendObserver) Sending() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent, e.discard = true, false
}

// decision is what the handler has said about its run.
type decision struct {
	keep      bool // the key must never be freed: Keep was called, or a byte has left
	discard   bool
	unknown   bool
	retention time.Duration
}

func (e *Execution) decision() decision {
	e.mu.Lock()
	defer e.mu.Unlock()
	return decision{keep: e.sent || e.keep, discard: e.discard, unknown: e.unknown, retention: e.retention}
}

// runs reports whether e, or a run around it, has this key. A run in shadow counts only if the caller is in shadow too: it
// protects nothing.
func (e *Execution) runs(key string, shadow bool) bool {
	for ; e != nil; e = e.outer {
		if e.key == key && (shadow || e.alias == nil) {
			return true
		}
	}
	return false
}
