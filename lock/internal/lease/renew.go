package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// nextTick returns when tick has to look at a lease that was granted or renewed at start. The caller holds mu.
func (c *Core) nextTick(start time.Time) time.Time {
	if next := start.Add(c.config.TTL / 3); c.renews() && next.Before(c.until) {
		return next
	}
	return c.until
}

// tick renews the lease, or ends its handles when it has run out.
func (c *Core) tick() {
	start := time.Now()
	c.mu.Lock()
	if !c.abandonAt.IsZero() && !start.Before(c.abandonAt) {
		c.abandoned = true
	}
	until := c.until
	if c.phase < ending && !start.Before(until) {
		c.lose()
	}
	renews := c.renews() && !c.config.Group.Closed()
	due := renews && c.busy == nil
	if due {
		c.busy = make(chan struct{})
		c.config.Group.Begin()
		defer c.config.Group.Done()
	}
	c.mu.Unlock()

	next := until
	switch {
	case due && c.renew(until) == nil:
		next = start.Add(c.config.TTL / 3)
	case renews: // it has failed, or another call is under way
		next = time.Now().Add(background.Jitter(c.config.TTL / 10))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase > active {
		return
	}
	if c.until.Before(next) {
		next = c.until
	}
	c.wakeAt(next)
}

// renew renews the lease. It takes no longer than until the lease ends: tick has to see that, whether or not there is an
// answer.
func (c *Core) renew(until time.Time) error {
	defer c.endBusy()
	ctx, cancel := context.WithDeadline(c.values, until)
	defer cancel()
	return c.extend(ctx, c.config.TTL)
}

// alone calls do while no other call that moves the lease's end is under way: by what is left of the lease a Hold tells
// whether it comes late. The wait is a part of the time for one operation.
func (c *Core) alone(ctx context.Context, doing string, do func(context.Context) error) error {
	c.mu.Lock()
	if c.busy != nil {
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
			return fmt.Errorf("lock: %s: %w", doing, context.Cause(ctx))
		}
		c.mu.Lock()
	}
	c.busy = make(chan struct{})
	c.mu.Unlock()
	defer c.endBusy()
	return do(ctx)
}

func (c *Core) endBusy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.busy)
	c.busy = nil
}

// Extend lets the lease last for at least d from now.
func (h *Handle) Extend(ctx context.Context, d time.Duration) error {
	if h.Err() != nil {
		return store.ErrLost
	}
	return h.core.alone(ctx, "extend", func(ctx context.Context) error { return h.core.extend(ctx, d) })
}

// extend moves the end of the lease on the server, and then here.
func (c *Core) extend(ctx context.Context, d time.Duration) error {
	start := time.Now()
	c.mu.Lock()
	if c.phase > active { // it was lost, or ended, while this waited
		c.mu.Unlock()
		return store.ErrLost
	}
	if end := start.Add(c.config.OpTimeout + d); end.After(c.mayLast) {
		c.mayLast = end
	}
	c.mu.Unlock()
	o := c.backend.Extend(ctx, c.id, d)

	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.stands(o, "extend"); err != nil {
		return err
	}
	if o.Holder == store.Ours {
		c.move(start, d)
	}
	return nil
}

// stands returns nil if the claim stands, by the outcome of a script that leaves it there. The caller holds mu.
func (c *Core) stands(o store.Outcome, doing string) error {
	switch {
	case c.phase > active: // it was lost or ended meanwhile, and stays so
		return store.ErrLost
	case o.Foreign:
		c.lose()
		return store.ErrLost
	case o.Err != nil:
		return o.Wrap(doing)
	case o.Holder == store.Ours, o.Holder == store.OurValue: // a Settle has arrived whose reply did not; it will learn that itself
		return nil
	}
	c.lose()
	return store.ErrLost
}

// move lets the lease last for d from start. It never shortens it. The caller holds mu.
func (c *Core) move(start time.Time, d time.Duration) {
	if until := start.Add(Validity(d)); until.After(c.until) {
		c.until, c.expiry = until, start.Add(d)
	}
}

// Hold keeps the claim for d after the lease has ended.
func (h *Handle) Hold(ctx context.Context, d time.Duration) error {
	backend, err := h.core.settler("hold")
	if err != nil {
		return err
	}
	if h.Err() != nil {
		return store.ErrLost
	}
	return h.core.alone(ctx, "hold", func(ctx context.Context) error { return h.core.holdFor(ctx, backend, d) })
}

func (c *Core) holdFor(ctx context.Context, backend Settler, d time.Duration) error {
	wait := c.config.OpTimeout
	if limit, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(limit))
	}
	least, err := c.beginHold(d, wait)
	if err != nil {
		return err
	}
	start := time.Now()
	o := backend.Hold(ctx, c.id, d, c.config.TTL, least)

	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.stands(o, "hold"); err != nil {
		c.hold = maybeHeld
		if c.late != nil {
			c.resume()
		}
		return err
	}
	c.hold = held
	c.move(start, c.config.TTL)
	c.wakeAt(c.nextTick(start))
	return nil
}

// beginHold returns what must be left of the lease when the hold arrives, if the caller waits for so long. There is no
// renewal meanwhile: it would make a late one look early.
func (c *Core) beginHold(d, wait time.Duration) (least time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase > active {
		return 0, store.ErrLost
	}
	c.mayHold, c.hold = max(c.mayHold, d), holding
	c.wakeAt(c.until)
	return max(time.Until(c.expiry)-wait, 0), nil
}

// resume renews the lease again if it is not renewed any more, and wanted after all. The caller holds mu.
func (c *Core) resume() {
	before := c.renews()
	c.abandoned = false
	if c.hold != held {
		c.hold = notHeld
	}
	if c.renews() && !before {
		c.wakeAt(time.Now())
	}
}
