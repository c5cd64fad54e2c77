package lease

import (
	"container/heap"
	"container/list"
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
	pending bySize                   // at most 4,096, because each counts as pendingCost at least
	byKey   map[string][]*settlement // the same values by their key, of which most have one: each claim looks here
	queues  map[any]*list.List       // and by Backend.Node, the one tried next first; each has a worker
	bytes   int                      // the sizes of all pending values, without pendingCost

	added    uint64 // values that were pending, also if they made room at once; only grows
	stored   uint64 // values stored in the background; only grows
	givenUp  uint64 // values given up, or replaced by a short one; only grows
	unstored int    // given up since Close was called, and not yet returned by TakeUnstored
}

// bySize is a heap of pending values: the largest first, and the newest of equal ones, so that the others stay. See
// [heap.Interface].
type bySize []*settlement

func (h bySize) Len() int { return len(h) }

func (h bySize) Less(i, j int) bool {
	if a, b := max(len(h[i].value), maxSmall), max(len(h[j].value), maxSmall); a != b {
		return a > b
	}
	return h[i].number > h[j].number
}

func (h bySize) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements [heap.Interface].
func (h *bySize) Push(p any) {
	p.(*settlement).index = len(*h)
	*h = append(*h, p.(*settlement))
}

// Pop implements [heap.Interface].
func (h *bySize) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return p
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
		largest := b.pending[0]
		if largest.short != nil {
			b.shorten(largest)
			continue
		}
		b.removeLocked(largest, false)
		if largest != p {
			removed = append(removed, largest)
		}
	}
	return p.place != nil, removed
}

// insert adds p, however little room there is. The caller holds mu.
func (b *Backlog) insert(p *settlement) {
	if b.queues == nil {
		b.byKey, b.queues = map[string][]*settlement{}, map[any]*list.List{}
	}
	queue, key := b.queues[p.node], p.core.id.Key.Text
	if queue == nil {
		queue = list.New()
		b.queues[p.node] = queue
		p.core.config.Group.Go(func() { b.work(p.core.config, p.node) })
	}
	p.place = queue.PushBack(p)
	b.byKey[key] = append(b.byKey[key], p)
	b.added++
	p.number = b.added
	heap.Push(&b.pending, p)
	b.bytes += len(p.value)
}

// shorten replaces the value of p by its short one. The caller holds mu.
func (b *Backlog) shorten(p *settlement) {
	b.bytes -= len(p.value) - len(p.short)
	p.value, p.short, p.shortened = p.short, nil, true
	heap.Fix(&b.pending, p.index)
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
	if p.place == nil {
		return
	}
	b.queues[p.node].Remove(p.place)
	p.place = nil
	heap.Remove(&b.pending, p.index)
	key := p.core.id.Key.Text
	others := slices.DeleteFunc(b.byKey[key], func(other *settlement) bool { return other == p })
	if b.byKey[key] = others; len(others) == 0 {
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
