package lock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Lease is a key taken, until it is released, settled, or lost. Its methods are safe for concurrent use.
type Lease struct {
	locker *Locker
	key    string // as it stands in Redis
	token  uuid.UUID
	ctx    context.Context
	end    context.CancelCauseFunc

	mu        sync.Mutex
	timer     *time.Timer   // runs tick: at the next renewal, or at until
	until     time.Time     // moves only forward, and only when Redis has said so
	expiry    time.Time     // until, without what is taken off for drift: not later than the server's
	hold      time.Duration // how long the claim outlives the lease
	mayHold   time.Duration // the same, before Redis has said so
	renewing  bool          // until Abandon
	over      bool          // Release was called, or Settle is done, or refused: no renewal, no Settle any more
	insisting bool          // a Settle that got no answer is tried again in the background
	mayBeFree bool          // a Release was sent while the lease was valid
	verdict   error         // what Release answers once it is decided
	decided   bool
}

func newLease(ctx context.Context, l *Locker, key string, token uuid.UUID, start, until time.Time) *Lease {
	lease := &Lease{locker: l, key: key, token: token, until: until, expiry: start.Add(l.ttl), renewing: l.renew}
	lease.ctx, lease.end = context.WithCancelCause(context.WithoutCancel(ctx))

	lease.mu.Lock()
	defer lease.mu.Unlock()
	lease.timer = time.AfterFunc(time.Until(lease.wake(start)), lease.tick)
	return lease
}

// Context is done when the lease is over: after Release and Settle with the cause [context.Canceled], and with the
// cause [ErrLost] before the server lets the key go, when the lease could not be renewed, or at the latest a third of
// its length after the server lost it. It has the values of the context that the lease was asked for with, but not its
// cancellation.
func (l *Lease) Context() context.Context { return l.ctx }

// Token identifies this lease among all others on the key: a random UUID.
func (l *Lease) Token() string { return l.token.String() }

// Until tells how long the lease is valid if no further renewal succeeds. It carries a monotonic clock reading.
func (l *Lease) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// Abandon ends the renewals and releases nothing: Context is done when the lease has run out, and the key is free again
// then, or reads as [Abandoned] if it is held (see [Lease.Hold]). It is for an operation of which nobody knows whether
// it happened: a rival that came at once would do it again.
func (l *Lease) Abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewing = false
	if !l.over {
		l.timer.Reset(time.Until(l.until))
	}
}

// Extend makes the lease last for at least d from now, in whole milliseconds. Neither it nor a later renewal ever
// shortens a lease. [ErrLost] means that the lease is over; after any other error it is as it was.
func (l *Lease) Extend(ctx context.Context, d time.Duration) error {
	if d < minTTL {
		return fmt.Errorf("lock: extend: %v is below %v", d, minTTL)
	}
	if l.ctx.Err() != nil {
		return ErrLost
	}
	return l.extend(ctx, d.Truncate(time.Millisecond))
}

func (l *Lease) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// valid tells whether the key must still be ours, as far as this process can know. The caller holds mu.
func (l *Lease) valid() bool {
	return l.ctx.Err() == nil && time.Now().Before(l.until)
}

// finish ends the lease on this side: no renewal comes after it. The caller holds mu.
func (l *Lease) finish(cause error) {
	l.over = true
	l.timer.Stop()
	l.end(cause)
}
