package middleware

import (
	"context"
	"sync"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// values has what a request's context has, but no end: that the client leaves concerns neither the claim nor what
// becomes of it. It is context.WithoutCancel as a part of a call, without a thing of its own to be allocated. (The cause
// of the request's end does not show through it either: context.Cause asks for Err before it looks for one.)
type values struct{ of context.Context }

func (*values) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

func (*values) Done() <-chan struct{} { return nil }

func (*values) Err() error { return nil }

func (v *values) Value(key any) any { return v.of.Value(key) }

// runContext is the context of a run: that of its lease, with a deadline and the Execution. It ends when the lease is
// lost, at the deadline, or when the handler has returned.
//
// The context that really is ended is made when somebody first asks for Done, or sees that it is over: many handlers
// never do, and a context.WithDeadline and a WithValue below a new lease's context take eight allocations of 690 bytes.
// Whatever asks what kind of context this is (context.Cause, and those that make one below it) has asked for Done or
// Err before, and then gets the answers of the real one.
type runContext struct {
	exec     *Execution
	lease    *lock.Lease // nil if its loss does not end the run
	values   *values     // the parent where lease is nil
	deadline time.Time

	mu     sync.Mutex
	ended  bool            // the handler has returned, and it was not over before
	real   context.Context // nil until it is asked for
	cancel context.CancelFunc
}

// String keeps fmt from reading what others may be writing.
func (*runContext) String() string { return "middleware.runContext" }

func (c *runContext) Deadline() (deadline time.Time, ok bool) { return c.deadline, true }

func (c *runContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.realize(time.Now()).Done()
}

func (c *runContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real != nil {
		return c.real.Err()
	}
	if now := time.Now(); c.ended || c.over(now) {
		return c.realize(now).Err()
	}
	return nil
}

func (c *runContext) Value(key any) any {
	if _, ok := key.(executionKey); ok {
		return c.exec
	}
	c.mu.Lock()
	of := c.real
	c.mu.Unlock()
	if of == nil {
		of = c.parent()
	}
	return of.Value(key)
}

// end is called when the handler has returned, at the time given.
func (c *runContext) end(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil && c.over(now) {
		c.realize(now)
	}
	c.ended = true
	if c.real != nil {
		c.cancel()
	}
}

// over reports whether it has come to its end before the handler has. The caller holds mu.
func (c *runContext) over(now time.Time) bool {
	return !now.Before(c.deadline) || c.lease != nil && c.lease.Err() != nil
}

// parent returns the context that this one is below.
func (c *runContext) parent() context.Context {
	if c.lease == nil {
		return c.values
	}
	return c.lease.Context()
}

// realize returns the real context. The caller holds mu.
func (c *runContext) realize(now time.Time) context.Context {
	if c.real != nil {
		return c.real
	}
	parent := c.parent()
	if c.ended || c.lease != nil && c.lease.Until().After(c.deadline) && !now.Before(c.lease.Until()) {
		parent = context.WithoutCancel(parent) // what has run out since the deadline does not end it once more
	}
	if c.ended {
		c.real, c.cancel = context.WithCancel(parent)
		c.cancel()
	} else {
		c.real, c.cancel = context.WithDeadline(parent, c.deadline)
	}
	return c.real
}
