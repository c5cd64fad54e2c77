package lease

// Everything that moves the end of a lease: renewals, Extend and Hold. The rules:
//
//   - One of them is in flight at a time (Core.busy).
//   - Only a confirmed command moves validUntil. If a command fails because the key holds another type (Outcome.Foreign),
//     the lease is lost. After a Hold that failed in any other way, the claim is no longer renewed (holdUnknown).
//   - The lease is lost when validUntil is reached (tick), or when a reply shows that the key is no longer ours
//     (applyOutcome). Both call lose, which cancels the context of every handle with the cause ErrLost.

import (
	"context"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// renewAt returns when a lease is renewed next, after a grant, a Hold or a renewal that began at start: after a third
// of TTL. It deliberately has no jitter: leases that were granted together are then renewed in one batch. Only retries
// are jittered.
func (c *Config) renewAt(start time.Time) time.Time { return start.Add(c.TTL / 3) }

// retryAt returns when a renewal that failed at now is tried again: after a random pause of up to a tenth of TTL.
func (c *Config) retryAt(now time.Time) time.Time { return now.Add(background.Jitter(c.TTL / 10)) }

// firstTick returns when tick has to run first after a grant or a Hold that began at start. From then on tick sets the
// timer itself. The caller holds mu.
func (c *Core) firstTick(start time.Time) time.Time {
	if next := c.config.renewAt(start); c.renews() && next.Before(c.validUntil) {
		return next
	}
	return c.validUntil
}

// tick renews the lease, or loses it if validUntil is reached, and sets the timer for the next tick. The timer calls it.
func (c *Core) tick() {
	start := time.Now()
	validUntil, isDue, renewsNow := c.beginTick(start)
	if renewsNow {
		defer c.config.Group.Done()
	}
	next := validUntil
	switch {
	case renewsNow && c.renew(validUntil) == nil:
		next = c.config.renewAt(start)
	case isDue: // the renewal failed, or an Extend or Hold is in flight
		next = c.config.retryAt(time.Now())
	}
	c.scheduleTick(next)
}

// beginTick first abandons or loses the lease, if the time for that has come. Then it looks whether to renew it. isDue
// reports whether a renewal is due, and renewsNow whether this tick sends it: then beginTick has set busy, and the
// caller calls Group.Done.
func (c *Core) beginTick(start time.Time) (validUntil time.Time, isDue, renewsNow bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.abandonAt.IsZero() && !start.Before(c.abandonAt) {
		c.abandoned = true
	}
	validUntil = c.validUntil
	if c.phase < releasing && !start.Before(validUntil) {
		c.lose()
	}
	isDue = c.renews() && !c.config.Group.Closed()
	renewsNow = isDue && c.busy == nil
	if renewsNow {
		c.busy = make(chan struct{})
		c.config.Group.Begin()
	}
	return validUntil, isDue, renewsNow
}

// scheduleTick sets the timer to next, or to validUntil if that is earlier, unless the lease is over.
func (c *Core) scheduleTick(next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase > active {
		return
	}
	if c.validUntil.Before(next) {
		next = c.validUntil
	}
	c.wakeAt(next)
}

// renew sends a renewal. It returns at validUntil even without a reply, so that tick loses the lease on time. beginTick
// has set busy.
func (c *Core) renew(validUntil time.Time) error {
	defer c.endBusy()
	ctx, cancel := context.WithDeadline(c.config.Group.Base(), validUntil)
	defer cancel()
	err := c.extend(ctx, c.config.TTL)
	if err == nil {
		c.config.Counts.renewals.Add(1)
	}
	return err
}

// exclusively calls do alone: no renewal, Extend or Hold is in flight meanwhile. hold.lua detects a late Hold by how
// much of the lease is left, and another command would change that. The time for one operation includes the wait.
func (c *Core) exclusively(ctx context.Context, operation string, do func(context.Context) error) error {
	c.mu.Lock()
	if c.busy != nil { // the wait needs a limit; without a wait, do's own limit is enough
		var cancel context.CancelFunc
		limit := c.config.OpTimeout
		ctx, cancel = context.WithTimeoutCause(ctx, limit, background.TimeoutError(limit))
		defer cancel()
	}
	for c.busy != nil {
		over := c.busy
		c.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return fmt.Errorf("lock: %s: %w", operation, context.Cause(ctx))
		}
		c.mu.Lock()
	}
	c.busy = make(chan struct{})
	c.mu.Unlock()
	defer c.endBusy()
	return do(ctx)
}

// endBusy lets the next renewal, Extend or Hold begin.
func (c *Core) endBusy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.busy)
	c.busy = nil
}

// Extend extends the lease to at least d from now.
func (h *Handle) Extend(ctx context.Context, d time.Duration) error {
	if h.Err() != nil {
		return store.ErrLost
	}
	return h.core.exclusively(ctx, "extend", func(ctx context.Context) error { return h.core.extend(ctx, d) })
}

// extend extends the claim and, if the backend confirms that, the lease. The caller has set busy.
func (c *Core) extend(ctx context.Context, d time.Duration) error {
	start := time.Now()
	c.mu.Lock()
	if c.phase > active { // lost or ended while this call waited
		c.mu.Unlock()
		return store.ErrLost
	}
	c.latestExpiry = later(c.latestExpiry, start.Add(c.config.OpTimeout+d))
	c.mu.Unlock()
	o := c.backend.Extend(ctx, c.id, d)

	c.mu.Lock()
	defer c.mu.Unlock()
	return c.applyOutcome(o, "extend", start, d)
}

// applyOutcome applies the outcome of an Extend or a Hold that began at start. If the key holds our claim, it prolongs
// the lease to d and returns nil. If the key holds our value, it changes nothing and returns nil. Otherwise it returns
// why the command failed, and loses the lease if the key is absent or holds anything else. The caller holds mu.
func (c *Core) applyOutcome(o store.Outcome, operation string, start time.Time, d time.Duration) error {
	switch {
	case c.phase > active: // lost or ended since the command was sent
		return store.ErrLost
	case o.Foreign:
		c.lose()
		return store.ErrLost
	case o.Err != nil:
		return o.Wrap(operation)
	case o.Holder == store.Ours:
		c.prolong(start, d)
		return nil
	case o.Holder == store.OurValue: // a Settle has arrived, and its own reply will end the lease
		return nil
	}
	c.lose()
	return store.ErrLost
}

// prolong makes the lease valid for Validity(d) from start. It never shortens the lease. The caller holds mu.
func (c *Core) prolong(start time.Time, d time.Duration) {
	if until := start.Add(Validity(d)); until.After(c.validUntil) {
		c.validUntil, c.expiry = until, start.Add(d)
		c.latestExpiry = later(c.latestExpiry, c.expiry)
	}
}

// Hold puts the claim under a hold: it lasts for d after the lease has ended.
func (h *Handle) Hold(ctx context.Context, d time.Duration) error {
	if h.Err() != nil {
		return store.ErrLost
	}
	return h.core.exclusively(ctx, "hold", func(ctx context.Context) error { return h.core.holdFor(ctx, d) })
}

// holdFor sends a Hold. The caller has set busy.
func (c *Core) holdFor(ctx context.Context, d time.Duration) error {
	maxWait := c.config.OpTimeout
	if deadline, ok := ctx.Deadline(); ok {
		maxWait = min(maxWait, time.Until(deadline))
	}
	minLeft, err := c.beginHold(d, maxWait)
	if err != nil {
		return err
	}
	start := time.Now()
	o := c.backend.Hold(ctx, c.id, d, c.config.TTL, minLeft)

	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.applyOutcome(o, "hold", start, c.config.TTL); err != nil {
		c.hold = holdUnknown
		if c.pending != nil {
			c.resume()
		}
		return err
	}
	c.hold = holdConfirmed
	c.wakeAt(c.firstTick(start))
	return nil
}

// beginHold stops the renewals while a Hold is in flight. The caller waits for its reply for at most maxWait. minLeft
// is what is left of the lease at that time. If the Hold finds less, its caller has timed out, and Redis ignores the
// Hold.
func (c *Core) beginHold(d, maxWait time.Duration) (minLeft time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase > active {
		return 0, store.ErrLost
	}
	c.longestHold, c.hold = max(c.longestHold, d), holdInFlight
	c.latestExpiry = later(c.latestExpiry, time.Now().Add(maxWait+c.config.TTL))
	c.wakeAt(c.validUntil)
	return max(time.Until(c.expiry)-maxWait, 0), nil
}

// resume starts the renewals again, after Abandon or a Hold that failed, because a pending Settle needs the claim. If a
// Hold is still in flight, busy keeps tick from sending a renewal. The caller holds mu.
func (c *Core) resume() {
	renewedBefore := c.renews()
	c.abandoned = false
	if c.hold != holdConfirmed {
		c.hold = noHold
	}
	if c.renews() && !renewedBefore {
		c.wakeAt(time.Now())
	}
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
