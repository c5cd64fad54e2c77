package lease

// How a value is stored. The rules:
//
//   - Settle tries once. If it fails, and another try may succeed, a goroutine retries in the background: the Settle is
//     pending, and backlog.go counts it.
//   - A lease has one Settle. Another one returns ErrLost at once, whatever becomes of the first.
//   - The lease ends when a reply shows that the value is stored, or that the key holds something else. Any other error
//     leaves the lease as it is.
//   - The claim is renewed while a Settle is pending. When the retries are given up, the lease is abandoned.
//
// Core.mu is not held during a try.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// ErrPending is the error of a Settle that is retried in the background, because its value is not stored yet.
var ErrPending = errors.New("lock: storing goes on in the background")

const (
	maxRetry       = time.Hour        // how long a Settle or a Release is retried in the background
	maxSettlePause = 30 * time.Second // between two tries of a Settle
	minSettleTTL   = time.Millisecond // a value that would expire sooner is not stored
)

// settlement is one call of Settle.
type settlement struct {
	ctx   context.Context // never done
	value []byte          // with its head
	start time.Time       // when Settle was called: ttl and maxRetry count from it
	ttl   time.Duration
}

// retryDeadline returns when the background stops retrying: an hour after the call, or when the value would expire.
func (s *settlement) retryDeadline() time.Time { return s.start.Add(min(maxRetry, s.ttl)) }

// remainingTTL returns the TTL of the value if it is stored now.
func (s *settlement) remainingTTL() time.Duration {
	return (s.ttl - time.Since(s.start)).Truncate(minSettleTTL)
}

// Settle stores a value for ttl in place of the claim. appendTo gets the value's head, with capacity for size bytes more,
// and appends the value to it. ctx must never be done.
func (h *Handle) Settle(ctx context.Context, size int, appendTo func([]byte) []byte, ttl time.Duration) error {
	if !h.beginSettle() {
		return store.ErrLost
	}
	start := time.Now()
	s := settlement{ctx: ctx, value: h.core.newValue(start, size, appendTo), start: start, ttl: ttl}
	done, err := h.core.trySettle(&s, ttl)
	if !done && h.core.settleInBackground(s) {
		return fmt.Errorf("%w; %w", err, ErrPending)
	}
	return err
}

// beginSettle reports whether this is the first Settle of the lease, and neither the handle nor the lease was released.
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

// trySettle tries once to store the value. done reports whether a reply has decided and the lease has ended: err is nil
// if the value is stored, and otherwise ErrLost. If it is not done, another try may succeed.
func (c *Core) trySettle(s *settlement, ttl time.Duration) (done bool, err error) {
	o := c.backend.Settle(s.ctx, c.id, s.value, ttl)

	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case o.Err != nil && !o.Foreign:
		return false, o.Wrap("settle")
	case o.Foreign, o.Holder == store.Another:
		c.end(store.ErrLost, store.ErrLost)
		return true, store.ErrLost
	}
	// The value is stored: in place of our claim (Ours), under an absent key (Nobody), or already before (OurValue).
	c.end(context.Canceled, nil)
	return true, nil
}

// settleInBackground begins to retry a Settle, and reports whether it does. While the Settle is pending, the claim is
// renewed. Nothing is retried if the lease was released or settled meanwhile, the deadline is
// reached, the Locker is closed, or the value is larger than the backlog.
func (c *Core) settleInBackground(s settlement) (pending bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase >= releasing {
		return false
	}
	s.ctx, s.value = c.config.Group.Base(), slices.Clip(bytes.Clone(s.value)) // without unused capacity
	added := c.config.Backlog.add(c.config.Group.Context(), len(s.value), s.retryDeadline())
	if added == nil {
		c.abandon()
		return false
	}
	c.pending, c.abandonAt = added, time.Time{}
	if c.abandoned {
		c.abandoned = false
		c.wakeAt(time.Now())
	}
	c.config.Group.Go(func() {
		resolved := false
		defer func() { // also if a hook of the client ends this goroutine
			c.endPending()
			c.config.Backlog.remove(added, resolved)
		}()
		resolved = c.retrySettle(s, added)
	})
	return true
}

// retrySettle tries to store the value, after growing pauses. resolved is true when the value is stored, or when it
// need not be because the lease was released or settled meanwhile. It is false if the key holds something else, or the
// value is given up: at the deadline, to make room for a newer one, or because the Locker is closed and one last try
// has failed.
func (c *Core) retrySettle(s settlement, pending *pendingSettle) (resolved bool) {
	deadline := s.retryDeadline()
	pauses := background.NewBackoff(maxSettlePause)
	for {
		// pending.ctx is done when the Locker is closed, the backlog needs the room, or the lease is released or settled.
		cutShort := background.Pause(pending.ctx, min(pauses.Next(), time.Until(deadline))) != nil
		lastTry := cutShort && c.config.Group.Closed()
		if c.isReleasedOrSettled() {
			return true
		}
		givenUp := cutShort && !lastTry // the backlog needs the room
		ttl := s.remainingTTL()
		if givenUp || ttl < minSettleTTL || !time.Now().Before(deadline) {
			return false
		}
		if done, err := c.trySettle(&s, ttl); done {
			return err == nil
		}
		if lastTry {
			return false
		}
	}
}

// endPending ends a pending Settle. The claim is no longer renewed for it, and the lease runs out.
func (c *Core) endPending() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending.cancel()
	c.pending = nil
	c.abandon()
}
