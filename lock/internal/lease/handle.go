package lease

import (
	"context"
	"slices"
	"time"
)

// Handle is one caller's reference to a lease. Each lock.Lease has one. Its methods may be called concurrently.
type Handle struct {
	core   *Core
	parent context.Context // of ctx: has its values, and is never done

	// guarded by Core.mu
	released bool
	cause    error                   // why the handle ended; nil before
	ctx      context.Context         // done with cause; nil until Context is called, which saves two allocations; then fixed
	cancel   context.CancelCauseFunc // of ctx
}

// addHandle makes h a handle of c. ctx must never be done. The caller holds mu.
func (c *Core) addHandle(ctx context.Context, h *Handle) {
	h.core, h.parent = c, ctx
	c.handles = append(c.handles, h)
}

// Join makes other a handle on the lease of h, and reports whether it did. It does not if h is released, the lease is
// no longer valid, or its value is pending. ctx must never be done.
func (h *Handle) Join(ctx context.Context, other *Handle) bool {
	c := h.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.released || !c.valid() || c.pending != nil {
		return false
	}
	c.addHandle(ctx, other)
	return true
}

// Context returns a context that is done when the handle has ended, with the cause. Its Err and its Done end a lease
// past its end, as Handle.Err does.
func (h *Handle) Context() context.Context {
	h.core.mu.Lock()
	defer h.core.mu.Unlock()
	if h.ctx == nil {
		h.ctx, h.cancel = context.WithCancelCause(h.parent)
		if h.cause != nil {
			h.cancel(h.cause)
		}
	}
	return (*handleContext)(h)
}

// Err returns why the handle has ended, and nil before. It ends a lease that is past its end, also if the timer has not
// fired yet: after a pause of the process the timer is late, and another caller may have the key.
func (h *Handle) Err() error {
	h.core.mu.Lock()
	defer h.core.mu.Unlock()
	if h.cause == nil {
		h.core.expire(time.Now())
	}
	return h.cause
}

// handleContext is the context of a Handle. Each method that tells whether it is done calls Handle.Err first. A context
// that is derived from it is then done, too.
type handleContext Handle

func (c *handleContext) Deadline() (deadline time.Time, ok bool) { return c.ctx.Deadline() }

func (c *handleContext) Done() <-chan struct{} {
	_ = (*Handle)(c).Err()
	return c.ctx.Done()
}

func (c *handleContext) Err() error {
	_ = (*Handle)(c).Err()
	return c.ctx.Err()
}

// Value finds values, and for package context, with an *int as the key, the nearest parent that can be cancelled. Before
// Go 1.26 context.Cause calls it instead of Err.
func (c *handleContext) Value(key any) any {
	if _, ok := key.(*int); ok {
		_ = (*Handle)(c).Err()
	}
	return c.ctx.Value(key)
}

// String keeps fmt from reading fields that another goroutine may be writing.
func (*handleContext) String() string { return "lock.Lease.Context" }

// end ends the handle and its context, unless the handle has ended before. The caller holds mu.
func (h *Handle) end(cause error) {
	if h.cause != nil {
		return
	}
	h.cause = cause
	if h.ctx != nil {
		h.cancel(cause)
	}
}

// AbandonAt stops the renewals from t on, and releases nothing. The zero time means never. AbandonAt has no effect if
// the handle or the lease is released, or the lease is settled. Nor has it one while a Settle is pending, which needs
// the claim, and abandons the lease when it is given up.
func (h *Handle) AbandonAt(t time.Time) {
	c := h.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if !h.released && c.phase < releasing && c.pending == nil {
		c.abandonAt = t
	}
}

// markReleased marks the handle as released, and reports whether it is the lease's last one. The caller then releases
// the claim, which also ends the handle. A handle that is not the last is ended by markReleased. With onlyHeld it does
// nothing if the lease is over or abandoned, or Settle was called.
func (h *Handle) markReleased(onlyHeld bool) (last bool) {
	c := h.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if onlyHeld && (!c.valid() || c.abandoned() || c.settling) {
		return false
	}
	i := slices.Index(c.handles, h)
	if i < 0 { // released before
		return false
	}
	h.released = true
	if len(c.handles) == 1 { // it stays in the list, because its Release may be called again
		return true
	}
	c.handles = slices.Delete(c.handles, i, i+1)
	h.end(context.Canceled)
	return false
}
