package lock

import (
	"context"
	"time"
)

// wake returns when tick has to look at a lease that was granted or renewed at start. The caller holds mu.
func (g *grant) wake(start time.Time) time.Time {
	if next := start.Add(g.ttl / 3); g.renewing && next.Before(g.until) {
		return next
	}
	return g.until
}

// tick renews the lease, or ends its context when it has run out.
func (g *grant) tick() {
	start := time.Now()
	g.mu.Lock()
	if !g.abandonAt.IsZero() && !start.Before(g.abandonAt) {
		g.renewing, g.abandoned = false, true
	}
	until, renewing := g.until, g.renewing && !g.over && !g.work.closed()
	if !g.over && !start.Before(until) {
		g.lose()
		renewing = false
	}
	g.mu.Unlock()

	next := until
	if renewing {
		// Not longer than the lease lasts: then its end is due, whether or not an answer has come.
		ctx, cancel := context.WithDeadline(g.values, until)
		defer cancel()
		if g.extend(ctx, g.ttl) == nil {
			next = start.Add(g.ttl / 3)
		} else {
			next = time.Now().Add(jitter(g.ttl / 10))
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over || g.ended {
		return
	}
	if g.until.Before(next) {
		next = g.until
	}
	g.wakeAt(next)
}

// wakeAt lets tick run at the time given, if it is to run at all any more. The caller holds mu.
func (g *grant) wakeAt(t time.Time) {
	if g.alarm != nil {
		g.alarm.reset(time.Until(t))
	}
}

// sleep lets tick run no more. The caller holds mu.
func (g *grant) sleep() {
	if g.alarm != nil {
		g.alarms.stop(g.alarm)
		g.alarm = nil
	}
}

// extend moves the end of the lease on the server, and then here.
func (g *grant) extend(ctx context.Context, d time.Duration) error {
	g.mu.Lock()
	hold := g.hold
	g.mu.Unlock()
	start := time.Now()
	a := g.keeper.extend(ctx, g.key, g.token, hold+d)

	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.standing(a, "extend"); err != nil {
		return err
	}
	if a.standing(g.token) == claimed {
		g.move(start, d)
	}
	return nil
}

// standing returns nil if the claim stands, by the answer of a script that leaves it there. The caller holds mu.
func (g *grant) standing(a answer, doing string) error {
	switch {
	case g.ended: // it was told lost or over meanwhile, and stays so
		return ErrLost
	case a.foreign:
		g.lose()
		return ErrLost
	case a.err != nil:
		return a.wrap(doing)
	}
	switch a.standing(g.token) {
	case claimed, left: // left: a Settle has arrived whose reply did not; it will learn that itself
		return nil
	}
	g.lose()
	return ErrLost
}

// move lets the lease last for d from start. It never shortens it. The caller holds mu.
func (g *grant) move(start time.Time, d time.Duration) {
	if until := start.Add(validity(d)); until.After(g.until) {
		g.until, g.expiry = until, start.Add(d)
	}
}

// lose ends the contexts because the server no longer holds our claim. Settle may still be tried. The caller holds mu.
func (g *grant) lose() {
	g.renewing = false
	g.sleep()
	g.endHandles(ErrLost)
}
