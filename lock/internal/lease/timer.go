package lease

import (
	"sync"
	"time"
)

// timer calls a lease's tick. One that has never fired is used again: that it may still fire can then be ruled out.
type timer struct {
	timer *time.Timer
	core  *Core
	fired bool // perhaps; guarded by the lease's mu, which reset and stop need too
}

// Timers are those that are used again.
type Timers struct{ pool sync.Pool }

// set returns a timer that fires after d.
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

func (t *timer) reset(d time.Duration) {
	t.fired = !t.timer.Reset(d) || t.fired
}

// stop lets a timer fire no more. The caller must forget it.
func (ts *Timers) stop(t *timer) {
	if t.timer.Stop() && !t.fired {
		t.core = nil
		ts.pool.Put(t)
	}
}

// wakeAt lets tick run at the time given, if it is to run at all any more. The caller holds mu.
func (c *Core) wakeAt(t time.Time) {
	if c.timer != nil {
		c.timer.reset(time.Until(t))
	}
}

// stopTimer lets tick run no more. The caller holds mu.
func (c *Core) stopTimer() {
	if c.timer != nil {
		c.config.Timers.stop(c.timer)
		c.timer = nil
	}
}
