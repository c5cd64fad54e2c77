package lease

// What tests see of a lease's inside.
const (
	MaxBacklog    = maxBacklog
	PendingCost   = pendingCost
	MaxBatchBytes = maxBatchBytes
)

// PhaseNames are the phases in their order.
var PhaseNames = [...]string{active: "active", lost: "lost", releasing: "releasing", ended: "ended"}

// Phase returns how far the lease has come, as an index of PhaseNames.
func (c *Core) Phase() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(c.phase)
}

// HasTimer reports whether a tick is still to come.
func (c *Core) HasTimer() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.timer != nil
}

// Tick is what the timer calls. A call that has begun when the timer is stopped still runs.
func (c *Core) Tick() { c.tick() }

// Keys returns how many keys have pending values.
func (b *Backlog) Keys() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.byKey)
}
