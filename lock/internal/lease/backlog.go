package lease

import (
	"container/list"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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
	number atomic.Int64 // of pending values: Holds needs no mutex while it is 0

	mu      sync.Mutex
	closed  bool                        // guarded by mu, as all below
	pending list.List                   // of *pendingSettle, the oldest first
	byKey   map[string][]*pendingSettle // the same values; those of one key from the oldest on
	byNode  map[any]*nodeQueue          // the same values, by Backend.Node
	bytes   int                         // the sizes of all pending values, without pendingCost

	stored   uint64 // values stored in the background; only grows
	givenUp  uint64 // values given up; only grows
	unstored int    // given up since Close was called, and not yet returned by TakeUnstored
}

// pendingSettle is a Settle that has failed and is retried. Core.pending points to it.
type pendingSettle struct {
	settlement
	core *Core
	node any // of the key

	// guarded by Backlog.mu
	place   *list.Element // in Backlog.pending; nil once removed
	queue   *nodeQueue    // of node
	inQueue *list.Element // in queue.values
	try     *settleTry    // in flight; nil if none is
}

// Holds reports whether a value is pending under the key with that Text.
func (b *Backlog) Holds(key string) bool { return b.number.Load() > 0 && b.oldest(key) != nil }

// oldest returns the oldest value that is pending under a key, or nil.
func (b *Backlog) oldest(key string) *pendingSettle {
	b.mu.Lock()
	defer b.mu.Unlock()
	if values := b.byKey[key]; len(values) > 0 {
		return values[0]
	}
	return nil
}

// add adds p, and starts the worker of its node. If there is too little room, it removes the oldest values and returns
// them: the caller ends their Settles by Core.giveUp. added is false, and p counts as given up, if p is larger than
// maxBacklog, its deadline is reached, or the Locker is closed.
func (b *Backlog) add(p *pendingSettle) (added bool, dropped []*pendingSettle) {
	b.mu.Lock()
	defer b.mu.Unlock()
	size := len(p.value)
	if size+pendingCost > maxBacklog || p.core.config.Group.Closed() || !time.Now().Before(p.retryDeadline()) {
		b.count(false)
		return false, nil
	}
	for b.bytes+size+(b.pending.Len()+1)*pendingCost > maxBacklog { // ends: p fits into an empty backlog
		oldest := b.pending.Front().Value.(*pendingSettle)
		b.drop(oldest)
		b.count(false)
		dropped = append(dropped, oldest)
	}
	if b.byKey == nil {
		b.byKey, b.byNode = map[string][]*pendingSettle{}, map[any]*nodeQueue{}
	}
	key := p.core.id.Key.Text
	p.place, b.byKey[key] = b.pending.PushBack(p), append(b.byKey[key], p)
	b.bytes += size
	b.number.Add(1)
	b.enqueue(p)
	return true, dropped
}

// remove removes p and counts how it ended, unless it was removed before.
func (b *Backlog) remove(p *pendingSettle, stored bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.place != nil {
		b.drop(p)
		b.count(stored)
	}
}

// drop removes p. The caller holds mu.
func (b *Backlog) drop(p *pendingSettle) {
	b.pending.Remove(p.place)
	p.queue.values.Remove(p.inQueue)
	p.place = nil
	b.bytes -= len(p.value)
	b.number.Add(-1)
	key := p.core.id.Key.Text
	others := make([]*pendingSettle, 0, len(b.byKey[key])-1)
	for _, other := range b.byKey[key] {
		if other != p {
			others = append(others, other)
		}
	}
	if b.byKey[key] = others; len(others) == 0 {
		delete(b.byKey, key)
	}
}

// count counts a value as stored or given up. The caller holds mu.
func (b *Backlog) count(stored bool) {
	switch {
	case stored:
		b.stored++
		return
	case b.closed:
		b.unstored++
	}
	b.givenUp++
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
	n := b.unstored + b.pending.Len()
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
	return BacklogStats{Pending: b.pending.Len(), Bytes: b.bytes, Stored: b.stored, GivenUp: b.givenUp}
}
