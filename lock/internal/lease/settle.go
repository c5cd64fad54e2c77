package lease

// Settle stores a value in place of the claim. The rules:
//
//   - Settle tries once: it calls the backend, which sends up to four times. If that fails and another try may succeed,
//     the Settle is pending: it is retried in the background. backlog.go holds its value, and pending.go retries it.
//   - A lease has one Settle. A second one returns ErrLost at once, whether or not the first has succeeded.
//   - The lease ends when a reply shows that the value is stored, or that the key holds something else. Any other error
//     leaves the lease as it is.
//   - While a Settle is pending, the claim is renewed until the lease is lost. After that the retries go on, and another
//     caller may take the key. When the retries are given up, the lease is abandoned.
//
// Core.mu is not held during a try.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceguard/onceguard/lock/internal/store"
)

// ErrPending is the error of a Settle that is retried in the background, because its value is not stored yet.
var ErrPending = errors.New("lock: storing goes on in the background")

const (
	maxRetry     = time.Hour        // how long a Settle or a Release is retried in the background
	minSettleTTL = time.Millisecond // a value that would expire sooner is not stored
)

// settlement is a Settle that is pending, in the Backlog and as Core.pending.
type settlement struct {
	core  *Core
	start time.Time // when Settle was called: ttl and maxRetry count from it
	ttl   time.Duration
	node  any // of the key

	// guarded by Backlog.mu; no byte of a value changes
	value     []byte     // with its head
	short     []byte     // what may take its place, likewise; nil: nothing, or it has
	shortened bool       // short has taken its place
	try       *settleTry // in flight; nil if none is
	isPending bool       // in the Backlog
	number    uint64     // by Backlog.added: the newest has the greatest
}

// retryDeadline returns when the background stops retrying: an hour after the call, or when the value would expire.
func (s *settlement) retryDeadline() time.Time { return s.start.Add(min(maxRetry, s.ttl)) }

// remainingTTL returns the TTL of the value if it is stored now.
func (s *settlement) remainingTTL() time.Duration {
	return (s.ttl - time.Since(s.start)).Truncate(minSettleTTL)
}

// Settle stores a value for ttl in place of the claim. appendTo gets the value's head, with capacity for size bytes more,
// and appends the value to it. appendShort does that for the short value that may take its place while the Settle is
// pending; it may be nil. ctx must never be done.
func (h *Handle) Settle(
	ctx context.Context, size int, appendTo, appendShort func([]byte) []byte, ttl time.Duration,
) error {
	if !h.beginSettle() {
		return store.ErrLost
	}
	start := time.Now()
	value := h.core.newValue(start, size, appendTo)
	done, err := h.core.trySettle(ctx, value, ttl)
	if done {
		return err
	}
	p := &settlement{core: h.core, start: start, ttl: ttl}
	p.value = slices.Clip(bytes.Clone(value)) // without unused capacity
	if appendShort != nil && len(value) > maxSmall {
		if short := h.core.newValue(start, 0, appendShort); len(short) < len(value) {
			p.short = short
		}
	}
	if h.core.settleInBackground(p) {
		return fmt.Errorf("%w; %w", err, ErrPending)
	}
	return err
}

// beginSettle reports whether the lease may settle: this is its first Settle, and neither the handle nor the lease was
// released. A lost lease may settle (lost < releasing): the key may be absent, or still have its claim, and the script
// decides.
func (h *Handle) beginSettle() bool {
	c := h.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.released || c.settling || c.phase >= releasing {
		return false
	}
	c.settling = true
	return true
}

// newValue returns the value that appendTo appends, with its head.
func (c *Core) newValue(settled time.Time, size int, appendTo func([]byte) []byte) []byte {
	head := store.NewValue(c.id.Token, settled, size)
	value := appendTo(head)
	if !bytes.HasPrefix(value, head) {
		panic("lock.SettleAppend: appendTo did not append to its argument")
	}
	return value
}

// trySettle tries once to store the value. done reports whether a reply has decided that: err is then nil if the value is
// stored, and otherwise ErrLost. If done is false, another try may succeed.
func (c *Core) trySettle(ctx context.Context, value []byte, ttl time.Duration) (done bool, err error) {
	o := c.backend.Settle(ctx, c.id.Key, c.id.Token, c.id.Written, value, ttl)
	if o.Err != nil {
		return false, o.Wrap("settle")
	}
	c.keepReleasing(true) // the value may expire before the claim returns
	return true, c.endSettled(o.Holder)
}

// endSettled ends the lease after a reply to its Settle. holder is who had the key then.
func (c *Core) endSettled(holder store.Holder) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if holder == store.Another {
		if c.phase < releasing { // else it may be a successor, and the Release ends the lease
			c.end(store.ErrLost, store.ErrLost)
		}
		return store.ErrLost
	}
	// The value is stored: in place of our claim (Ours), under an absent key (Nobody), or already before (OurValue).
	c.end(context.Canceled, nil)
	return nil
}

// settleInBackground makes a Settle pending, and reports whether it did. It does not if the lease was released or
// settled meanwhile, the deadline is reached, the Locker is closed, or the backlog has too little room.
func (c *Core) settleInBackground(p *settlement) (pending bool) {
	p.node = c.backend.Node(c.id.Key)
	pending, removed := c.setPending(p)
	for _, other := range removed {
		other.core.giveUp(other)
	}
	return pending
}

// setPending adds p to the backlog, and reports whether it did. removed are the values that the backlog has removed for
// p: the caller gives them up.
func (c *Core) setPending(p *settlement) (added bool, removed []*settlement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase >= releasing {
		return false, nil
	}
	added, removed = c.config.Backlog.add(p)
	if !added {
		c.abandonAt = time.Now()
		return false, nil
	}
	if c.abandoned() && c.timer != nil {
		c.timer.Reset(0)
	}
	c.pending, c.abandonAt = p, time.Time{}
	return true, removed
}

// retrySettle is trySettle for a pending Settle and its value. It sends nothing, and is done with ErrLost, if the lease was
// released or settled meanwhile, or the deadline of the value is reached.
func (c *Core) retrySettle(p *settlement, value []byte) (done bool, err error) {
	ttl := p.remainingTTL()
	switch {
	case c.isReleasedOrSettled():
		return true, store.ErrLost
	case ttl < minSettleTTL || !time.Now().Before(p.retryDeadline()):
		c.giveUp(p)
		return true, store.ErrLost
	}
	return c.trySettle(c.config.Group.Base(), value, ttl)
}

// giveUp ends a pending Settle whose value is not stored. The claim is no longer renewed for it, and the lease runs out.
func (c *Core) giveUp(p *settlement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.config.Backlog.remove(p, false)
	if c.pending == p {
		c.pending, c.abandonAt = nil, time.Now()
	}
}
