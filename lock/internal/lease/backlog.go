package lease

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrGivenUp says that values could not be stored before the Locker was closed.
var ErrGivenUp = errors.New("lock: values could not be stored")

// maxBacklog is how many bytes of values a Locker keeps that could not be stored yet. Each counts for pendingCost more: its
// goroutine, its lease, and what a try allocates.
const (
	maxBacklog  = 64 << 20
	pendingCost = 16 << 10
)

// Backlog is what a Locker knows of the values that it could not store yet. Its zero value is empty.
type Backlog struct {
	mu      sync.Mutex // guards all below
	closed  bool
	pending list.List // of *lateSettle, the oldest first
	bytes   int       // of all that are pending, without pendingCost

	stored   uint64 // late
	givenUp  uint64
	unstored int // given up since Close was called, and not told yet
}

// lateSettle is a Settle that goes on in the background.
type lateSettle struct {
	ctx    context.Context // done when it is to end: after Close, or to make room, or when the lease is over
	cancel context.CancelFunc
	size   int
	place  *list.Element // nil when it was given up to make room
}

// add makes room for a value of that size, if need be by giving up the oldest ones. It returns nil for one that is
// larger than all room, for one whose time is over, and when the Locker is closed.
func (b *Backlog) add(ctx context.Context, size int, end time.Time) *lateSettle {
	b.mu.Lock()
	defer b.mu.Unlock()
	if size+pendingCost > maxBacklog || ctx.Err() != nil || !time.Now().Before(end) {
		b.count(false)
		return nil
	}
	for b.bytes+size+(b.pending.Len()+1)*pendingCost > maxBacklog {
		oldest := b.pending.Front().Value.(*lateSettle)
		b.take(oldest)
		b.count(false)
		oldest.cancel()
	}
	s := &lateSettle{size: size}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.place = b.pending.PushBack(s)
	b.bytes += size
	return s
}

// remove ends what add began, and counts how it ended. One that was given up to make room was counted before.
func (b *Backlog) remove(s *lateSettle, stored bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.place != nil {
		b.take(s)
		b.count(stored)
	}
}

// take takes s out of the list. The caller holds mu.
func (b *Backlog) take(s *lateSettle) {
	b.pending.Remove(s.place)
	s.place = nil
	b.bytes -= s.size
}

// count counts a value that is pending no longer. The caller holds mu.
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

// Close counts from now on what Lost returns.
func (b *Backlog) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// Lost returns an error that says how many values Close has given up since it was asked last, nil if there are none.
func (b *Backlog) Lost() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.unstored + b.pending.Len()
	if n == 0 {
		return nil
	}
	b.unstored = 0
	return fmt.Errorf("%w: %d", ErrGivenUp, n)
}

// BacklogStats is what a Backlog counts.
type BacklogStats struct {
	Pending, Bytes  int
	Stored, GivenUp uint64
}

// Stats returns what is counted.
func (b *Backlog) Stats() BacklogStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return BacklogStats{Pending: b.pending.Len(), Bytes: b.bytes, Stored: b.stored, GivenUp: b.givenUp}
}
