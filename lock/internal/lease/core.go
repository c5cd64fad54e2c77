// Package lease implements the life of a lease: how it is renewed, extended, settled, released or lost. A Core is the
// lease of one claim. Each caller that shares it has a Handle, and lock.Lease wraps a Handle. Package lock gives a Core
// its Backend. This package learns about Redis only from what the Backend has found: store.Found.
//
//	core.go      the lease, its phases, and how it moves through them
//	handle.go    a caller's share in a lease, with the context that ends with it
//	renew.go     renewals and Extend: what moves the end of a lease
//	release.go   Release
//	settle.go    Settle
//	backlog.go   the values of Settles that are pending
//	pending.go   the workers that store them
//
// Core.mu guards a lease and all its handles. It is never held while a Backend is called.
package lease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// Backend stores claims: a store.Store, or what tests put in its place. Its methods may be called concurrently, and
// return within the time for one operation.
type Backend interface {
	// Extend extends the claim to at least d from now.
	Extend(ctx context.Context, key store.Key, token uuid.UUID, d time.Duration) store.Found
	// Release removes the claim. hasHold reports whether the claim has a hold.
	Release(ctx context.Context, key store.Key, token uuid.UUID, written []byte, hasHold bool) store.Found
	// KeepReleasing releases a claim in the background: until Redis answers and, if the claim may return, several times
	// after that. It returns at once.
	KeepReleasing(c store.Unneeded)
	// Settle replaces the claim with the value, for ttl.
	Settle(ctx context.Context, key store.Key, token uuid.UUID, written, value []byte, ttl time.Duration) store.Found
	// Node returns what identifies the server that has the key now. It sends nothing.
	Node(key store.Key) any
}

// ID names a claim, and has what its release depends on.
type ID struct {
	Key       store.Key
	Token     uuid.UUID
	Hold      time.Duration // for which the claim stays after its lease; 0 without a hold
	Written   []byte        // the whole claim, if it is known
	IsLock    bool          // TryAcquire, Acquire or Resume has written it
	MayReturn bool          // a command may still arrive, and write the claim again after its end: see Core.keepReleasing
}

// Config is what the leases of one Locker share.
type Config struct {
	TTL       time.Duration // the length of a lease: from a grant or a renewal to the expiry
	OpTimeout time.Duration // the time for one operation
	Renew     bool          // false with WithoutRenewal
	Group     *background.Group
	Backlog   *Backlog
	Counts    Counts
}

// Counts counts the leases of a Locker, and their renewals. Its zero value is ready to use.
type Counts struct {
	Active   atomic.Int64  // leases that are valid now
	Renewals atomic.Uint64 // that the backend has confirmed
	Lost     atomic.Uint64 // leases that were lost while their holders relied on them
}

// phase is how far a lease has come. Core.advance moves it, only forward, and ends the contexts of all handles:
//
//	from           to          when
//	active         lost        validUntil was reached, or the backend returned that the key is no longer ours
//	active, lost   releasing   Release sends its first command
//	any            ended       Settle or Release was confirmed or refused
//
// A lost lease may still settle and release: perhaps no other caller has taken the key.
type phase int

const (
	active phase = iota
	lost
	releasing
	ended
)

// Core is a lease. Its handles share it.
type Core struct {
	config   *Config
	backend  Backend
	id       ID
	detached context.Context // never done; carries the values of the context that the lease was requested with

	mu      sync.Mutex
	phase   phase       // guarded by mu, like all fields below
	handles []*Handle   // not released, except that the last one stays after its release
	room    [1]*Handle  // holds handles while there is one
	timer   *time.Timer // calls tick at the next renewal or at validUntil; nil once the phase is not active

	// validUntil < latestExpiry
	validUntil   time.Time // of the lease; grows when the backend confirms a longer lease
	latestExpiry time.Time // when the server expires a claim without a hold, if every Extend has arrived; only grows

	releasedWhileValid bool  // a Release was sent while the lease was valid: who has the key now may have taken it since
	releaseErr         error // what Release returns once the phase is ended

	lostCounted bool // the lease is counted in Counts.Lost

	abandonAt time.Time // from when on the renewals stop, so that the lease runs out; zero means never

	settling bool        // Settle was called; only becomes true
	pending  *settlement // the Settle that is retried in the background; nil if none is
}

// Validity returns how long a lease of length ttl is valid, counted from the start of the operation, before its first
// command is sent. The margin is one percent for clocks that run at different speeds, and two milliseconds for the
// resolution of the server's expiry.
func Validity(ttl time.Duration) time.Duration {
	return ttl - ttl/100 - 2*time.Millisecond
}

// Init makes c a lease whose claim was sent at start, with its first handle. detached must never be done. If the reply
// to the claim took so long that the lease would be over, Init starts nothing and returns false.
func (c *Core) Init(config *Config, backend Backend, id ID, detached context.Context, start time.Time, first *Handle) bool {
	c.config, c.backend, c.id, c.detached = config, backend, id, detached
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.validUntil, c.latestExpiry = start.Add(Validity(config.TTL)), start.Add(config.TTL)
	if !now.Before(c.validUntil) {
		return false
	}
	c.timer = time.AfterFunc(config.renewAt(start).Sub(now), c.tick)
	config.Counts.Active.Add(1)
	c.handles = c.room[:0]
	c.addHandle(detached, first)
	return true
}

// ID returns the key and the token of the lease's claim.
func (c *Core) ID() ID { return c.id }

// Until returns the time until which the lease is valid if no further renewal succeeds.
func (c *Core) Until() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.validUntil
}

// abandoned reports whether the renewals have stopped, so that the lease runs out. The caller holds mu.
func (c *Core) abandoned() bool { return !c.abandonAt.IsZero() && !time.Now().Before(c.abandonAt) }

// valid reports whether the lease is active and validUntil is not reached. The caller holds mu.
func (c *Core) valid() bool { return c.phase == active && time.Now().Before(c.validUntil) }

// isReleasedOrSettled reports whether the phase is releasing or ended: Release was called, or a Settle was confirmed or
// refused.
func (c *Core) isReleasedOrSettled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase >= releasing
}

// advance moves the lease to a phase, never back, stops the timer, and ends all handles with cause. The caller holds
// mu.
func (c *Core) advance(to phase, cause error) {
	c.phase = to
	if c.timer != nil { // a tick that has begun waits for mu, and finds that the lease is over
		c.timer.Stop()
		c.timer = nil
		c.config.Counts.Active.Add(-1)
	}
	if errors.Is(cause, store.ErrLost) {
		c.countLost()
	}
	for _, handle := range c.handles {
		handle.end(cause)
	}
	if c.pending != nil && c.phase >= releasing { // a lease that is released or settled needs no pending Settle
		c.config.Backlog.remove(c.pending, !errors.Is(cause, store.ErrLost))
		c.pending = nil
	}
}

// end moves the lease to ended, and ends all handles with cause. From now on Release returns releaseErr, unless the
// lease had ended before. The caller holds mu.
func (c *Core) end(cause, releaseErr error) {
	if c.phase < ended {
		c.releaseErr = releaseErr
	}
	c.advance(ended, cause)
}

// expire loses the lease if it is active and validUntil is reached. The caller holds mu.
func (c *Core) expire(now time.Time) {
	if c.phase == active && !now.Before(c.validUntil) {
		c.lose()
	}
}

// lose ends all handles with ErrLost: validUntil was reached, or the key is no longer ours. Settle may still be called.
// The caller holds mu.
func (c *Core) lose() { c.advance(lost, store.ErrLost) }

// countLost counts the lease as lost, once. It does not count an abandoned lease, which is meant to run out. The caller
// holds mu.
func (c *Core) countLost() {
	if !c.abandoned() && !c.lostCounted {
		c.lostCounted = true
		c.config.Counts.Lost.Add(1)
	}
}
