package lease

import "time"

// wakeAt makes the timer call tick at t, unless the timer was stopped. The caller holds mu.
func (c *Core) wakeAt(t time.Time) {
	if c.timer != nil {
		c.timer.Reset(time.Until(t))
	}
}

// stopTimer stops the calls of tick for good. A call that has begun waits for mu, and finds that the lease is over. The
// caller holds mu.
func (c *Core) stopTimer() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
		c.config.Counts.Active.Add(-1)
	}
}
