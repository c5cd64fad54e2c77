package lease

// Renewals and Extend move the end of a lease. The rules:
//
//   - Only a confirmed command moves validUntil, and no command ever shortens a lease. So several may be in flight at
//     the same time.
//   - The lease is lost when validUntil is reached (tick, or Handle.Err if it is called before the timer has fired, as
//     after a pause of the process), or when a reply shows that the key is no longer ours (applyFound). All call lose,
//     which cancels the context of every handle with the cause ErrLost.

import (
	"context"
	"time"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// renewAt returns when a lease is renewed next: a third of TTL after start, when the grant or the last renewal began.
// It has no jitter, so that leases that were granted together are renewed in one batch. Only retries have jitter.
// (Without renewals tick then finds that none is due.)
func (c *Config) renewAt(start time.Time) time.Time { return start.Add(c.TTL / 3) }

// tick renews the lease, or loses it if validUntil is reached, and sets the timer for the next tick: at validUntil at the
// latest. The timer calls it.
func (c *Core) tick() {
	start := time.Now()
	validUntil, isDue := c.beginTick(start)
	next := validUntil
	if isDue {
		defer c.config.Group.Done()
		next = c.renew(start, validUntil)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == active {
		c.timer.Reset(min(time.Until(next), time.Until(c.validUntil)))
	}
}

// beginTick loses the lease if validUntil is reached. isDue reports whether a renewal is due: the caller sends it, and
// then calls Group.Done.
func (c *Core) beginTick(start time.Time) (validUntil time.Time, isDue bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire(start)
	isDue = c.config.Renew && !c.abandoned() && !c.config.Group.Closed()
	if isDue {
		c.config.Group.Begin()
	}
	return c.validUntil, isDue
}

// renew sends a renewal, and returns when the next one is due. It returns at validUntil at the latest, so that tick
// loses the lease on time.
func (c *Core) renew(start, validUntil time.Time) (next time.Time) {
	ctx, cancel := context.WithDeadline(c.config.Group.Base(), validUntil)
	defer cancel()
	if c.extend(ctx, c.config.TTL) != nil {
		return time.Now().Add(background.Jitter(c.config.TTL / 10))
	}
	c.config.Counts.Renewals.Add(1)
	return c.config.renewAt(start)
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
	f := c.backend.Extend(ctx, c.id.Key, c.id.Token, d)

	c.mu.Lock()
	defer c.mu.Unlock()
	return c.applyFound(f, start, d)
}

// applyFound applies what an Extend that began at start has found. If the key holds our claim, it prolongs the lease
// to d, unless the lease is longer, and returns nil. If the key holds our value, it changes nothing and returns nil. If
// the key is absent or holds anything else, it loses the lease and returns ErrLost. After any other error it changes
// nothing and returns that error. The caller holds mu.
func (c *Core) applyFound(f store.Found, start time.Time, d time.Duration) error {
	switch {
	case c.phase > active: // lost or ended since the command was sent
		return store.ErrLost
	case f.Err != nil:
		return f.Wrap("extend")
	case f.Holder == store.OurValue: // a Settle has arrived, and its own reply will end the lease
		return nil
	case f.Holder != store.Ours:
		c.lose()
		return store.ErrLost
	}
	if until := start.Add(Validity(d)); until.After(c.validUntil) {
		c.validUntil = until
	}
	return nil
}
