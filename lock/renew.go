package lock

import (
	"context"
	"fmt"
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
	due := renewing && g.turn == nil
	if due {
		g.turn = make(chan struct{})
	}
	g.mu.Unlock()

	next := until
	switch {
	case due && g.renewOnce(until) == nil:
		next = start.Add(g.ttl / 3)
	case renewing: // it has failed, or another has the turn
		next = time.Now().Add(jitter(g.ttl / 10))
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

// renewOnce renews the lease in the turn that was taken for it. It does not take longer than until the lease ends: that
// is due then, whether or not an answer has come.
func (g *grant) renewOnce(until time.Time) error {
	defer g.endTurn()
	ctx, cancel := context.WithDeadline(g.values, until)
	defer cancel()
	return g.extend(ctx, g.ttl)
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

// inTurn calls do when no other call that moves the lease's end is under way: by what is left of the lease a Hold tells
// whether it comes late. The wait is a part of the time for one operation.
func (g *grant) inTurn(ctx context.Context, doing string, do func(context.Context) error) error {
	g.mu.Lock()
	if g.turn != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, g.opTimeout, errNoAnswer(g.opTimeout))
		defer cancel()
	}
	for g.turn != nil {
		over := g.turn
		g.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return fmt.Errorf("lock: %s: %w", doing, context.Cause(ctx))
		}
		g.mu.Lock()
	}
	g.turn = make(chan struct{})
	g.mu.Unlock()
	defer g.endTurn()
	return do(ctx)
}

func (g *grant) endTurn() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.turn)
	g.turn = nil
}

// extend moves the end of the lease on the server, and then here.
func (g *grant) extend(ctx context.Context, d time.Duration) error {
	start := time.Now()
	g.mu.Lock()
	if end := start.Add(g.opTimeout + d); end.After(g.mayLast) {
		g.mayLast = end
	}
	g.mu.Unlock()
	a := g.keeper.extend(ctx, g.key, g.token, d)

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
