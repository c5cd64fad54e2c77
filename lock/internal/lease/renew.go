package lease

// Renewals and Extend move the end of a lease. The rules:
//
//   - Only a confirmed command moves validUntil, and no command ever shortens a lease. So several may be in flight at
//     the same time.
//   - The lease is lost when validUntil is reached (tick), or when a reply shows that the key is no longer ours
//     (applyOutcome). Both call lose, which cancels the context of every handle with the cause ErrLost.

import (
	"context"
	"time"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// renewAt returns when a lease is renewed next: a third of TTL after start, when the grant or the last renewal began.
// It has no jitter, so that leases that were granted together are renewed in one batch. Only retries have jitter.
func (c *Config) renewAt(start time.Time) time.Time { return start.Add(c.TTL / 3) }

// retryAt returns when a renewal that failed at now is tried again: after a random pause of up to a tenth of TTL.
func (c *Config) retryAt(now time.Time) time.Time { return now.Add(background.Jitter(c.TTL / 10)) }

// firstTick returns when tick has to run first after a grant that began at start. From then on tick sets the timer
// itself. The caller holds mu.
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
	case isDue: // the renewal failed, or another one is in flight
		next = c.config.retryAt(time.Now())
	}
	c.scheduleTick(next)
}

// beginTick abandons or loses the lease if the time for that has come, and begins a renewal if one is due. isDue
// reports whether a renewal is due, and renewsNow whether this tick sends it: then beginTick has set renewing, and the
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
	renewsNow = isDue && !c.renewing
	if renewsNow {
		c.renewing = true
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

// renew sends a renewal. It returns at validUntil at the latest, so that tick loses the lease on time. beginTick has
// set renewing.
func (c *Core) renew(validUntil time.Time) error {
	defer c.endRenewing()
	ctx, cancel := context.WithDeadline(c.config.Group.Base(), validUntil)
	defer cancel()
	err := c.extend(ctx, c.config.TTL)
	if err == nil {
		c.config.Counts.Renewals.Add(1)
	}
	return err
}

// endRenewing lets tick send the next renewal.
func (c *Core) endRenewing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewing = false
}

// Extend extends the lease to at least d from now.
func (h *Handle) Extend(ctx context.Context, d time.Duration) error {
	if h.Err() != nil {
		return store.ErrLost
	}
	return h.core.extend(ctx, d)
}

// extend extends the claim and, if the backend confirms that, the lease.
func (c *Core) extend(ctx context.Context, d time.Duration) error {
	start := time.Now()
	c.mu.Lock()
	if c.phase > active {
		c.mu.Unlock()
		return store.ErrLost
	}
	if latest := start.Add(c.config.OpTimeout + d); latest.After(c.latestExpiry) {
		c.latestExpiry = latest
	}
	c.mu.Unlock()
	o := c.backend.Extend(ctx, c.id.Key, c.id.Token, d)

	c.mu.Lock()
	defer c.mu.Unlock()
	return c.applyOutcome(o, start, d)
}

// applyOutcome applies the outcome of an Extend that began at start. If the key holds our claim, it prolongs the lease
// to d and returns nil. If the key holds our value, it changes nothing and returns nil. If the key is absent or holds
// anything else, it loses the lease and returns ErrLost. After any other error it changes nothing and returns that
// error. The caller holds mu.
func (c *Core) applyOutcome(o store.Outcome, start time.Time, d time.Duration) error {
	switch {
	case c.phase > active: // lost or ended since the command was sent
		return store.ErrLost
	case o.Foreign:
		c.lose()
		return store.ErrLost
	case o.Err != nil:
		return o.Wrap("extend")
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
		c.validUntil = until
	}
}
