package lock

import (
	"context"
	"time"
)

// MaxHold is the longest time that [Lease.Hold] takes, ten years.
const MaxHold = 10 * 365 * 24 * time.Hour

// keepFor does what Hold says, in its turn.
func (g *grant) keepFor(ctx context.Context, locker *Locker, d time.Duration) error {
	wait := g.opTimeout
	if limit, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(limit))
	}
	least, err := g.beginHold(d, wait)
	if err != nil {
		return err
	}
	start := time.Now()
	a := locker.writeHold(ctx, g.key, g.token, d, g.ttl, least)

	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.standing(a, "hold"); err != nil {
		if g.late != nil {
			g.resume()
		}
		return err
	}
	g.move(start, g.ttl)
	g.renewing = g.renew && !g.abandoned
	g.wakeAt(g.wake(start))
	return nil
}

// beginHold returns what must be left of the lease when the hold arrives, if the caller waits for so long. There is no
// renewal meanwhile: it would make a late one look early.
func (g *grant) beginHold(d, wait time.Duration) (least time.Duration, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return 0, ErrLost
	}
	g.mayHold, g.renewing = max(g.mayHold, d), false
	g.wakeAt(g.until)
	return max(time.Until(g.expiry)-wait, 0), nil
}
