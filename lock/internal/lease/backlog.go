package lease

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrGivenUp is the error of a Close that has given up values which could not be stored.
var ErrGivenUp = errors.New("lock: values could not be stored")

const (
	maxBacklog  = 64 << 20 // bytes: all pending values of a Locker, and pendingCost for each
	pendingCost = 16 << 10 // bytes: the lease of a pending Settle, and what a try allocates
)

// Backlog holds the values of a Locker that could not be stored yet, and limits their size. pending.go stores them. The
// zero value of a Backlog is empty. Its methods may be called concurrently; those of this file also with Core.mu held.
type Backlog struct {
	mu      sync.Mutex
	closed  bool                     // guarded by mu, as all below
	pending []*settlement            // at most 4,096, because each counts as pendingCost at least; the one tried next first
	byKey   map[string][]*settlement // the same values by their key, of which most have one: each claim looks here
	workers map[any]bool             // the nodes, by Backend.Node, whose values a worker stores
	bytes   int                      // the sizes of all pending values, without pendingCost

	stored   uint64 // values stored in the background; only grows
	givenUp  uint64 // values given up; only grows
	unstored int    // given up since Close was called, and not yet returned by TakeUnstored
}

// oldestOf returns the oldest value that is pending under a key, or nil.
func (b *Backlog) oldestOf(key string) *settlement {
	b.mu.Lock()
	defer b.mu.Unlock()
	return oldest(b.byKey[key])
}

// oldest returns the oldest of values, or nil.
func oldest(values []*settlement) (oldest *settlement) {
	for _, p := range values {
		if oldest == nil || p.start.Before(oldest.start) {
			oldest = p
		}
	}
	return oldest
}

// add adds p, and starts the worker of its node. If there is too little room, it removes the oldest values and returns
// them: the caller ends their Settles by Core.giveUp. added is false, and p counts as given up, if p is larger than
// maxBacklog, its deadline is reached, or the Locker is closed.
func (b *Backlog) add(p *settlement) (added bool, dropped []*settlement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	config, size := p.core.config, len(p.value)
	if size+pendingCost > maxBacklog || config.Group.Closed() || !time.Now().Before(p.retryDeadline()) {
		b.count(false)
		return false, nil
	}
	for b.bytes+size+(len(b.pending)+1)*pendingCost > maxBacklog { // ends: p fits into an empty backlog
		old := oldest(b.pending)
		b.drop(old, false)
		dropped = append(dropped, old)
	}
	if b.workers == nil {
		b.byKey, b.workers = map[string][]*settlement{}, map[any]bool{}
	}
	key := p.core.id.Key.Text
	b.pending, b.byKey[key] = append(b.pending, p), append(b.byKey[key], p)
	b.bytes += size
	if !b.workers[p.node] {
		b.workers[p.node] = true
		config.Group.Go(func() { b.work(config, p.node) })
	}
	return true, dropped
}

// remove removes p and counts how it ended, unless it was removed before.
func (b *Backlog) remove(p *settlement, stored bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(p, stored)
}

// drop is remove. The caller holds mu.
func (b *Backlog) drop(p *settlement, stored bool) {
	i := slices.Index(b.pending, p)
	if i < 0 {
		return
	}
	b.pending = slices.Delete(b.pending, i, i+1)
	key := p.core.id.Key.Text
	others := slices.DeleteFunc(b.byKey[key], func(other *settlement) bool { return other == p })
	if b.byKey[key] = others; len(others) == 0 {
		delete(b.byKey, key)
	}
	b.bytes -= len(p.value)
	b.count(stored)
}

// count counts a value as stored or given up. The caller holds mu.
func (b *Backlog) count(stored bool) {
	if stored {
		b.stored++
		return
	}
	b.givenUp++
	if b.closed {
		b.unstored++
	}
}

// Close makes TakeUnstored count the values that are given up from now on.
func (b *Backlog) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// TakeUnstored returns an error that wraps ErrGivenUp, with the number of values that are pending or were given up
// since the last call. It returns nil if there are none. Locker.Close calls it last.
func (b *Backlog) TakeUnstored() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.unstored + len(b.pending)
	if n == 0 {
		return nil
	}
	b.unstored = 0
	return fmt.Errorf("%w: %d", ErrGivenUp, n)
}

// BacklogStats holds the counts of a Backlog: see lock.Stats.
type BacklogStats struct {
	Pending, Bytes  int
	Stored, GivenUp uint64
}

// Stats returns the counts.
func (b *Backlog) Stats() BacklogStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return BacklogStats{Pending: len(b.pending), Bytes: b.bytes, Stored: b.stored, GivenUp: b.givenUp}
}
