package lease

import (
	"sync/atomic"

	"github.com/google/uuid"
)

// Counts counts the leases of a Locker, and their renewals. Its zero value is ready to use. Its methods may be called
// concurrently, and with Core.mu held.
type Counts struct {
	active         [16]shard // sharded by the token's first byte, because each request changes the count twice
	renewals, lost atomic.Uint64
}

// shard is a counter with a cache line of its own.
type shard struct {
	n atomic.Int64
	_ [56]byte
}

func (c *Counts) add(token uuid.UUID, n int64) { c.active[int(token[0])%len(c.active)].n.Add(n) }

// Active returns how many leases are valid now.
func (c *Counts) Active() (n int) {
	for i := range c.active {
		n += int(c.active[i].n.Load())
	}
	return n
}

// Renewals returns how many renewals the backend has confirmed.
func (c *Counts) Renewals() uint64 { return c.renewals.Load() }

// Lost returns how many leases were lost while their holders relied on them.
func (c *Counts) Lost() uint64 { return c.lost.Load() }

// countLost counts the lease as lost, once. It does not count an abandoned lease, which is meant to run out. The caller
// holds mu.
func (c *Core) countLost() {
	if !c.abandoned && !c.lostCounted {
		c.lostCounted = true
		c.config.Counts.lost.Add(1)
	}
}
