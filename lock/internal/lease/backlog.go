package lease

import (
	"cmp"
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
	maxSmall    = 1 << 10  // bytes: a value that needs no short one
)

// Backlog holds the values of a Locker that could not be stored yet, and limits their size. If there is too little room,
// the largest values make it, perhaps the new one: a value that has a short one is replaced by that, and any other is given
// up. Values of at most maxSmall count as equal. pending.go stores the values. The zero value of a Backlog is empty. Its
// methods may be called concurrently; those of this file also with Core.mu held.
type Backlog struct {
	mu      sync.Mutex
	closed  bool                     // guarded by mu, as all below
	pending []*settlement            // the one tried next first; at most 4,096, because each counts as pendingCost at least
	byKey   map[string][]*settlement // the same values by their key, of which most have one: each claim looks here
	workers map[any]bool             // the nodes that have a worker, by Backend.Node
	bytes   int                      // the sizes of all pending values, without pendingCost

	added    uint64 // values that were pending, also if they made room at once; only grows
	stored   uint64 // values stored in the background; only grows
	givenUp  uint64 // values given up, or replaced by a short one; only grows
	unstored int    // given up since Close was called, and not yet returned by TakeUnstored
}

// bySize compares pending values: the larger one is greater, and of equal ones the newer one, so that the others stay.
func bySize(p, q *settlement) int {
	sizes := cmp.Compare(max(len(p.value), maxSmall), max(len(q.value), maxSmall))
	return cmp.Or(sizes, cmp.Compare(p.number, q.number))
}

// oldestOf returns the oldest value that is pending under a key, or nil.
func (b *Backlog) oldestOf(key string) (oldest *settlement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.byKey[key] {
		if oldest == nil || p.start.Before(oldest.start) {
			oldest = p
		}
	}
	return oldest
}

// add adds p, and starts the worker of its node. If there is too little room, it replaces the largest values by their
// short ones, and removes and returns those without one: the caller ends their Settles by Core.giveUp. added is false,
// and p counts as given up, if it is one of the latter, its deadline is reached, or the Locker is closed.
func (b *Backlog) add(p *settlement) (added bool, removed []*settlement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.core.config.Group.Closed() || !time.Now().Before(p.retryDeadline()) {
		b.count(p, false)
		return false, nil
	}
	b.insert(p)
	for b.bytes+len(b.pending)*pendingCost > maxBacklog { // ends: each value is replaced once, and then removed
		largest := slices.MaxFunc(b.pending, bySize)
		if largest.short != nil {
			b.shorten(largest)
			continue
		}
		b.removeLocked(largest, false)
		if largest != p {
			removed = append(removed, largest)
		}
	}
	return p.isPending, removed
}

// insert adds p, however little room there is. The caller holds mu.
func (b *Backlog) insert(p *settlement) {
	if b.byKey == nil {
		b.byKey, b.workers = map[string][]*settlement{}, map[any]bool{}
	}
	if !b.workers[p.node] {
		b.workers[p.node] = true
		p.core.config.Group.Go(func() { b.work(p.core.config, p.node) })
	}
	key := p.core.id.Key.Text
	b.byKey[key] = append(b.byKey[key], p)
	b.pending = append(b.pending, p)
	b.added++
	p.number, p.isPending = b.added, true
	b.bytes += len(p.value)
}

// shorten replaces the value of p by its short one. The caller holds mu.
func (b *Backlog) shorten(p *settlement) {
	b.bytes -= len(p.value) - len(p.short)
	p.value, p.short, p.shortened = p.short, nil, true
	b.givenUp++
}

// read returns the value of p, and its short one.
func (b *Backlog) read(p *settlement) (value, short []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return p.value, p.short
}

// remove removes p and counts how it ended, unless it was removed before.
func (b *Backlog) remove(p *settlement, stored bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.removeLocked(p, stored)
}

// removeLocked is remove. The caller holds mu.
func (b *Backlog) removeLocked(p *settlement, stored bool) {
	if !p.isPending {
		return
	}
	p.isPending = false
	isP := func(other *settlement) bool { return other == p }
	b.pending = slices.DeleteFunc(b.pending, isP)
	key := p.core.id.Key.Text
	if b.byKey[key] = slices.DeleteFunc(b.byKey[key], isP); len(b.byKey[key]) == 0 {
		delete(b.byKey, key)
	}
	b.bytes -= len(p.value)
	b.count(p, stored)
}

// count counts the value of p as stored or given up; shorten has counted one that was replaced. The caller holds mu.
func (b *Backlog) count(p *settlement, stored bool) {
	switch {
	case p.shortened:
	case stored:
		b.stored++
	default:
		b.givenUp++
	}
	if b.closed && !stored {
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
