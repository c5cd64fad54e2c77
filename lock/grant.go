package lock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// keeper is where a lease stands: a Locker, or a Quorum.
type keeper interface {
	extend(ctx context.Context, key storageKey, token uuid.UUID, d time.Duration) answer
	giveBack(ctx context.Context, key storageKey, token uuid.UUID, expiry time.Time) answer
}

// grant is what the handles on one lease share.
type grant struct {
	keeper keeper
	*base
	key    storageKey
	token  uuid.UUID
	fence  int64
	values context.Context // never done: what it was asked for with
	first  Lease

	mu        sync.Mutex
	handles   []*Lease      // that are not released
	room      [1]*Lease     // where the first one is
	alarm     *alarm        // runs tick: at the next renewal, or at until; nil when it is over
	until     time.Time     // moves only forward, and only when Redis has said so
	expiry    time.Time     // until, without what is taken off for drift: not later than the server's
	mayLast   time.Time     // how long the lease may last, if an extension without an answer has arrived
	mayHold   time.Duration // and how long the claim may outlive it
	turn      chan struct{} // closed when the Extend, Hold or renewal under way is over; nil if there is none
	renewing  bool          // not after Abandon, nor while a Hold is under way
	abandoned bool          // Abandon was called, or abandonAt is over
	abandonAt time.Time     // zero: never
	ended     bool          // the handles' contexts are done
	over      bool          // Release was called, or Settle is done, or refused: no renewal, no Settle any more
	settled   []byte        // what a Settle in the background has left behind
	late      *lateSettle   // a Settle that goes on in the background; nil if there is none
	mayBeFree bool          // a Release was sent while the lease was valid
	verdict   error         // what Release answers once it is decided
	decided   bool

	settleCalled time.Time // the first time; zero before
}

// newGrant returns the first handle on a lease that was asked for at start.
func newGrant(
	ctx context.Context, k keeper, b *base, key storageKey, token uuid.UUID, fence int64, start, until time.Time,
) *Lease {
	g := &grant{
		keeper: k, base: b, key: key, token: token, fence: fence, values: detached(ctx),
		until: until, expiry: start.Add(b.ttl), renewing: b.renew,
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.alarm = b.alarms.set(g, time.Until(g.wake(start)))
	g.handles = g.room[:0]
	g.addHandle(g.values, &g.first)
	return &g.first
}

// addHandle makes lease one more handle. ctx must have no end. The caller holds mu.
func (g *grant) addHandle(ctx context.Context, lease *Lease) {
	lease.grant, lease.parent = g, ctx
	g.handles = append(g.handles, lease)
}

// leave ends a handle. It tells whether it is the last one, for which the key is to be freed.
func (g *grant) leave(handle *Lease) (last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.handles, handle)
	switch {
	case i < 0:
		return false
	case len(g.handles) > 1:
		g.handles = slices.Delete(g.handles, i, i+1)
		handle.end(context.Canceled)
	}
	handle.released = true
	return len(g.handles) == 1 && g.handles[0] == handle
}

func (g *grant) abandon() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.letRunOut()
}

// letRunOut ends the renewals. The caller holds mu.
func (g *grant) letRunOut() {
	g.renewing, g.abandoned = false, true
	if !g.over {
		g.wakeAt(g.until)
	}
}

func (g *grant) renewUntil(t time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.abandonAt = t
}

func (g *grant) isOver() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.over
}

// valid tells whether the key must still be ours, as far as this process can know. The caller holds mu.
func (g *grant) valid() bool {
	return !g.ended && time.Now().Before(g.until)
}

// finish ends the lease on this side: no renewal comes after it. The caller holds mu.
func (g *grant) finish(cause error) {
	g.over = true
	g.sleep()
	g.endHandles(cause)
	if g.late != nil {
		g.late.cancel() // it has nothing left to do
	}
}

// endHandles lets everybody know that the lease is over. The caller holds mu.
func (g *grant) endHandles(cause error) {
	g.ended = true
	for _, handle := range g.handles {
		handle.end(cause)
	}
}
