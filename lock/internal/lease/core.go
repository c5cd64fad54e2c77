// Package lease is one lease's life: it is renewed, extended, held, settled, released or lost. It knows nothing of Redis
// but what its Backend says.
package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// Backend is where leases stand: one deployment, or a majority of several. Its methods may be called concurrently, and
// return within the time for one operation.
type Backend interface {
	// Extend lets the claim last for at least d from now.
	Extend(ctx context.Context, id ID, d time.Duration) store.Outcome
	// Release removes the claim, which nobody renews any more: it ends by itself at expiry.
	Release(ctx context.Context, id ID, expiry time.Time) store.Outcome
}

// Settler is a Backend whose leases can be held and settled.
type Settler interface {
	Backend
	// Hold keeps the claim for hold after the lease of the length given. It has no effect if less than least is left.
	Hold(ctx context.Context, id ID, hold, lease, least time.Duration) store.Outcome
	// Settle puts the value in the place of the claim for ttl.
	Settle(ctx context.Context, id ID, value []byte, ttl time.Duration) store.Outcome
}

// ID names a claim.
type ID struct {
	Key   store.Key
	Token uuid.UUID
}

// Config is what the leases of one Locker have in common.
type Config struct {
	TTL       time.Duration
	OpTimeout time.Duration
	Renew     bool
	Group     *background.Group
	Timers    *Timers
	Backlog   *Backlog
}

// phase is how far a lease has come. It only moves forward:
//
//	from      to        when
//	active    expired   a renewal failed until the end, or found another claim: its contexts are done
//	active    ending    Release was called
//	expired   ending    Release was called
//	any       ended     Settle or Release was confirmed or refused
//
// A lease that is expired may still settle: nobody may have taken the key.
type phase int

const (
	active phase = iota
	expired
	ending
	ended
)

// holdState says what is known of a hold.
type holdState int

const (
	notHeld holdState = iota
	holding           // a Hold is under way: a renewal would make a late one look early
	held
	maybeHeld // a Hold got no answer: the lease is not renewed, so that nothing stands that nobody knows of
)

// Core is a lease, which several handles may share.
type Core struct {
	config  *Config
	backend Backend
	id      ID
	values  context.Context // never done: has the values of the one that the lease was asked for with

	mu       sync.Mutex
	phase    phase         // guarded by mu, as all below
	hold     holdState     //
	handles  []*Handle     // that are not released
	room     [1]*Handle    // where the first one is
	timer    *timer        // runs tick: at the next renewal, or at until; nil when there is none to come
	until    time.Time     // how long the lease may be trusted: only grows, and only when the backend has said so
	expiry   time.Time     // until, without what is taken off for drift: not later than the server's
	mayLast  time.Time     // how long the lease may last, if an extension without an answer has arrived
	mayHold  time.Duration // how long the claim may outlive it
	busy     chan struct{} // closed when the Extend, Hold or renewal under way is over; nil if there is none
	verdict  error         // what Release returns once the lease is ended
	released bool          // a Release was sent while the lease was valid: the key may be free

	abandoned bool      // it is to run out
	abandonAt time.Time // when it will be; zero for never

	settleCalled time.Time   // the first time; zero before
	late         *lateSettle // a Settle that goes on in the background; nil if there is none
	settled      []byte      // what that has left behind
}

// Validity returns how long a lease of length ttl may be trusted, from before it was asked for: one percent is taken off
// for clocks that run at different speeds, and two milliseconds for the server's own expiry resolution.
func Validity(ttl time.Duration) time.Duration {
	return ttl - ttl/100 - 2*time.Millisecond
}

// Init makes c a lease that was asked for at start, with its first handle. values must have no end.
func (c *Core) Init(config *Config, backend Backend, id ID, values context.Context, start time.Time, first *Handle) {
	c.config, c.backend, c.id, c.values = config, backend, id, values
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until, c.expiry = start.Add(Validity(config.TTL)), start.Add(config.TTL)
	c.timer = config.Timers.set(c, time.Until(c.nextTick(start)))
	c.handles = c.room[:0]
	c.addHandle(values, first)
}

// ID returns what names the lease.
func (c *Core) ID() ID { return c.id }

// settler returns the backend if its leases can be held and settled.
func (c *Core) settler(doing string) (Settler, error) {
	if s, ok := c.backend.(Settler); ok {
		return s, nil
	}
	return nil, fmt.Errorf("lock: %s: %w", doing, errors.ErrUnsupported)
}

// Until returns how long the lease is valid if no further renewal succeeds.
func (c *Core) Until() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until
}

// renews reports whether the lease is to be renewed. The caller holds mu.
func (c *Core) renews() bool {
	return c.config.Renew && c.phase == active && !c.abandoned && (c.hold == notHeld || c.hold == held)
}

// valid reports whether the key must still be ours, as far as this process can know. The caller holds mu.
func (c *Core) valid() bool { return c.phase == active && time.Now().Before(c.until) }

// IsOver reports whether Release was called, or Settle is done or refused.
func (c *Core) IsOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase >= ending
}

// forward moves the lease to a later phase, and ends its handles with the cause. The caller holds mu.
func (c *Core) forward(to phase, cause error) {
	c.phase = max(c.phase, to)
	c.stopTimer()
	for _, handle := range c.handles {
		handle.end(cause)
	}
	if c.late != nil && c.phase >= ending {
		c.late.cancel() // it has nothing left to do
	}
}

// finish ends the lease on this side, and says what Release returns from now on. The caller holds mu.
func (c *Core) finish(cause, verdict error) {
	if c.phase < ended {
		c.verdict = verdict
	}
	c.forward(ended, cause)
}

// lose ends the handles because the server no longer holds our claim. Settle may still be tried. The caller holds mu.
func (c *Core) lose() { c.forward(expired, store.ErrLost) }

// abandon lets the lease run out. The caller holds mu.
func (c *Core) abandon() {
	c.abandoned = true
	if c.phase < ending {
		c.wakeAt(c.until)
	}
}

// Handle is one caller's share in a lease. Its methods may be called concurrently.
type Handle struct {
	core   *Core
	parent context.Context // of ctx: has its values, and is never done

	// guarded by Core.mu
	released bool
	cause    error           // of its end; nil before
	ctx      context.Context // nil until somebody asks for it: many do not, and it is two allocations
	cancel   context.CancelCauseFunc
}

// addHandle makes h one more handle. The caller holds mu.
func (c *Core) addHandle(ctx context.Context, h *Handle) {
	h.core, h.parent = c, ctx
	c.handles = append(c.handles, h)
}

// Join makes other one more handle on the lease of h, with a context that must have no end. It reports whether it did: not
// if h is released, or the lease is over.
func (h *Handle) Join(ctx context.Context, other *Handle) bool {
	c := h.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.released || !c.valid() {
		return false
	}
	c.addHandle(ctx, other)
	return true
}

// Context is done when the handle has ended.
func (h *Handle) Context() context.Context {
	h.core.mu.Lock()
	defer h.core.mu.Unlock()
	if h.ctx == nil {
		h.ctx, h.cancel = context.WithCancelCause(h.parent)
		if h.cause != nil {
			h.cancel(h.cause)
		}
	}
	return h.ctx
}

// Err returns the cause of its end, nil before.
func (h *Handle) Err() error {
	h.core.mu.Lock()
	defer h.core.mu.Unlock()
	return h.cause
}

// end ends the handle, unless it has ended. The caller holds mu.
func (h *Handle) end(cause error) {
	if h.cause != nil {
		return
	}
	h.cause = cause
	if h.ctx != nil {
		h.cancel(cause)
	}
}

// isOver reports whether the handle has no say any more. The caller holds mu.
func (h *Handle) isOver() bool { return h.released || h.core.phase >= ending }

// Abandon ends the renewals and releases nothing.
func (h *Handle) Abandon() {
	h.core.mu.Lock()
	defer h.core.mu.Unlock()
	if !h.isOver() && h.core.late == nil { // a Settle in the background keeps the claim, and abandons it at its end
		h.core.abandon()
	}
}

// AbandonAt is Abandon at t, if the lease is not over then. The zero time means never.
func (h *Handle) AbandonAt(t time.Time) {
	h.core.mu.Lock()
	defer h.core.mu.Unlock()
	if !h.isOver() && h.core.late == nil {
		h.core.abandonAt = t
	}
}

// leave ends the handle. It reports whether it is the last one, for which the key has to be freed.
func (h *Handle) leave() (last bool) {
	c := h.core
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.handles, h)
	switch {
	case i < 0:
		return false
	case len(c.handles) > 1:
		c.handles = slices.Delete(c.handles, i, i+1)
		h.end(context.Canceled)
	}
	h.released = true
	return len(c.handles) == 1 && c.handles[0] == h
}
