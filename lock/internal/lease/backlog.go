package lease

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrGivenUp is the error of a Close that has given up values which could not be stored.
var ErrGivenUp = errors.New("lock: values could not be stored")

const (
	maxBacklog  = 64 << 20 // bytes: all pending values of a Locker, and pendingCost for each
	pendingCost = 16 << 10 // bytes: the goroutine of a pending Settle, its lease, and what a try allocates
)

// Backlog counts the values of a Locker that could not be stored yet, and limits their size. settle.go retries each of
// them in a goroutine. The zero value of a Backlog is empty. Its methods may be called concurrently, and with Core.mu
// held.
type Backlog struct {
	mu      sync.Mutex
	closed  bool      // guarded by mu, as all below
	pending list.List // of *pendingSettle, the oldest first
	bytes   int       // the sizes of all pending values, without pendingCost

	stored   uint64 // values stored in the background; only grows
	givenUp  uint64 // values given up; only grows
	unstored int    // values given up since Close was called that TakeUnstored has not returned yet
}

// pendingSettle is a Settle that is retried in the background.
type pendingSettle struct {
	ctx    context.Context // done when the Locker is closed, the value is given up to make room, or the lease is over
	cancel context.CancelFunc
	size   int           // bytes
	place  *list.Element // in Backlog.pending; nil once removed; guarded by Backlog.mu
}

// add adds a value of size bytes, and gives up the oldest ones if there is too little room. It returns nil, and counts
// the value as given up, if the value is larger than maxBacklog, the deadline is reached, or the Locker is closed (ctx
// is done).
func (b *Backlog) add(ctx context.Context, size int, deadline time.Time) *pendingSettle {
	b.mu.Lock()
	defer b.mu.Unlock()
	if size+pendingCost > maxBacklog || ctx.Err() != nil || !time.Now().Before(deadline) {
		b.count(false)
		return nil
	}
	for b.bytes+size+(b.pending.Len()+1)*pendingCost > maxBacklog { // ends: size fits into an empty backlog
		oldest := b.pending.Front().Value.(*pendingSettle)
		b.drop(oldest)
		b.count(false)
		oldest.cancel()
	}
	s := &pendingSettle{size: size}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.place = b.pending.PushBack(s)
	b.bytes += size
	return s
}

// remove removes s and counts how it ended. If add has given s up to make room, add has done both.
func (b *Backlog) remove(s *pendingSettle, stored bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.place != nil {
		b.drop(s)
		b.count(stored)
	}
}

// drop removes s from the list. The caller holds mu.
func (b *Backlog) drop(s *pendingSettle) {
	b.pending.Remove(s.place)
	s.place = nil
	b.bytes -= s.size
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
