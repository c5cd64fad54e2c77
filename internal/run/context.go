package run

import (
	"context"
	"sync"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// runContext is the context of a run's operation, with a deadline. It ends at the deadline, and when the operation has
// ended. Its parent is the context of the lease, so it also ends when the lease is lost; but if a journal decides about
// the run, its parent is a context that never ends.
//
// It is lazy: the real context is made by the first Done, or by the first Err once the run is over. Most operations call
// neither, which saves nine of 31 allocations. Functions such as context.WithCancel and context.Cause look for a parent
// of package context by Value, with a key that is an *int. Before Go 1.26 Cause does so before it calls Err. So Value,
// too, makes the real context for such a key.
type runContext struct {
	req      *Request
	lease    *lock.Lease // nil if a journal decides: the loss of the lease does not end the run
	deadline time.Time

	mu     sync.Mutex         // guards the fields below
	ended  bool               // the operation has ended
	real   context.Context    // made by realize; nil before
	cancel context.CancelFunc // of real
}

// String keeps fmt from reading fields that another goroutine may be writing.
func (*runContext) String() string { return "onceguard.runContext" }

func (c *runContext) Deadline() (deadline time.Time, ok bool) { return c.deadline, true }

func (c *runContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.realize(time.Now()).Done()
}

func (c *runContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.real != nil || c.ended || c.isOver(now) {
		return c.realize(now).Err()
	}
	return nil
}

// Value returns the Request's ContextValue, or the value of the caller's context.
func (c *runContext) Value(key any) any {
	if key == c.req.ContextKey {
		return c.req.ContextValue
	}
	if _, ok := key.(*int); !ok {
		return c.req.caller.Value(key)
	}
	c.mu.Lock()
	real := c.realize(time.Now())
	c.mu.Unlock()
	return real.Value(key)
}

// end ends the context, and returns why it was done before, or nil. It is called when the operation has ended, at the time
// now.
func (c *runContext) end(now time.Time) (expired error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real != nil || c.isOver(now) {
		c.realize(now)
	}
	c.ended = true
	if c.real != nil {
		expired = context.Cause(c.real)
		c.cancel()
	}
	return expired
}

// isOver reports whether the deadline has passed, or the lease is over. The caller holds mu.
func (c *runContext) isOver(now time.Time) bool {
	return !now.Before(c.deadline) || c.lease != nil && c.lease.Err() != nil
}

// parent returns the context that this one is derived from.
func (c *runContext) parent() context.Context {
	if c.lease == nil {
		return c.req.detached()
	}
	return c.lease.Context()
}

// outlasted reports whether the lease has ended after the deadline: then the deadline has ended the run. When exactly a
// lease was lost is not known here, only that it is over. If it was valid until after the deadline, outlasted assumes
// that the deadline came first. The caller holds mu.
func (c *runContext) outlasted(now time.Time) bool {
	return c.lease != nil && c.lease.Until().After(c.deadline) && !now.Before(c.lease.Until())
}

// realize returns the real context. It makes the context at the first call. Later calls end it if the lease is over: see
// lock.Lease.Err. The caller holds mu.
func (c *runContext) realize(now time.Time) context.Context {
	if c.real != nil {
		if c.lease != nil {
			_ = c.lease.Err()
		}
		return c.real
	}
	parent := c.parent()
	if c.ended || c.outlasted(now) {
		parent = context.WithoutCancel(parent) // so that the loss of the lease is not the cause
	}
	if c.ended {
		c.real, c.cancel = context.WithCancel(parent)
		c.cancel()
	} else {
		c.real, c.cancel = context.WithDeadline(parent, c.deadline)
	}
	return c.real
}
