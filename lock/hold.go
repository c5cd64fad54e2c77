package lock

import (
	"context"
	"time"
)

// MaxHold is the longest time that [Lease.Hold] takes, ten years.
const MaxHold = 10 * 365 * 24 * time.Hour

// keepFor does what Hold says.
func (g *grant) keepFor(ctx context.Context, locker *Locker, d time.Duration) error {
	ttl, least, err := g.beginHold(d)
	if err != nil {
		return err
	}
	start := time.Now()
	a := locker.writeHold(ctx, g.key, g.token, d, ttl, least)

	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.standing(a, "hold"); err != nil {
		return err
	}
	g.hold = d
	g.move(start, ttl)
	g.renewing = g.renew && !g.abandoned
	g.wakeAt(g.wake(start))
	return nil
}

// beginHold returns how long the lease part is to last, which is never less than is left of it, and what must be left
// of the claim when the hold arrives. There is no renewal meanwhile: it would make a late one look early.
func (g *grant) beginHold(d time.Duration) (ttl, least time.Duration, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return 0, 0, ErrLost
	}
	left := time.Until(g.expiry)
	g.mayHold, g.renewing = d, false
	g.wakeAt(g.until)
	return max(g.ttl, left), max(left-g.opTimeout, 0) + g.hold, nil
}
