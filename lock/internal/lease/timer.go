package lease

import (
	"sync"
	"time"
)

// timer calls the tick of a lease. Another lease may reuse a timer that has never fired: it cannot call the tick of the
// earlier lease any more.
type timer struct {
	timer *time.Timer
	core  *Core
	fired bool // the timer may have fired; guarded by Core.mu
}

// Timers keeps the timers that no lease uses, for the next leases. Its zero value is empty. Its methods may be called
// concurrently.
type Timers struct{ pool sync.Pool }

// set returns a timer that calls c.tick after d.
func (ts *Timers) set(c *Core, d time.Duration) *timer {
	if t, ok := ts.pool.Get().(*timer); ok {
		t.core = c
		t.timer.Reset(d)
		return t
	}
	t := &timer{core: c}
	t.timer = time.AfterFunc(d, func() { t.core.tick() })
	return t
}

// reset makes the timer fire after d instead. The caller holds Core.mu.
func (t *timer) reset(d time.Duration) {
	t.fired = !t.timer.Reset(d) || t.fired
}

// stop stops a timer, which the caller must not use again. The caller holds Core.mu.
func (ts *Timers) stop(t *timer) {
	if t.timer.Stop() && !t.fired {
		t.core = nil
		ts.pool.Put(t)
	}
}

// wakeAt makes the timer call tick at t, unless the timer was stopped. The caller holds mu.
func (c *Core) wakeAt(t time.Time) {
	if c.timer != nil {
		c.timer.reset(time.Until(t))
	}
}

// stopTimer stops the calls of tick for good. The caller holds mu.
func (c *Core) stopTimer() {
	if c.timer != nil {
		c.config.Timers.stop(c.timer)
		c.timer = nil
		c.config.Counts.add(c.id.Token, -1)
	}
}
