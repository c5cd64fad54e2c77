package lease

// How a value is stored. The rules:
//
//   - Settle tries once. If the value may still be stored, a goroutine of that value retries in the background, and
//     backlog.go counts it. The error then wraps ErrPending.
//   - The lease ends when a reply shows that the value is stored, or that the key holds something else. Any other error
//     leaves the lease as it is.
//   - The claim is renewed while its Settle is pending. After that the lease runs out.
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
	backend   Settler
	ctx       context.Context // never done
	value     []byte          // with its head
	firstCall time.Time       // of any Settle of this lease: ttl counts from it
	thisCall  time.Time       // of this Settle: maxRetry counts from it
	ttl       time.Duration
}

// retryDeadline returns when the background stops retrying: an hour after the call, or when the value would expire.
func (s *settlement) retryDeadline() time.Time {
	retried, expired := s.thisCall.Add(maxRetry), s.firstCall.Add(s.ttl)
	if expired.Before(retried) {
		return expired
	}
	return retried
}

// remainingTTL returns the TTL of the value if it is stored now.
func (s *settlement) remainingTTL() time.Duration {
	return (s.ttl - time.Since(s.firstCall)).Truncate(minSettleTTL)
}

// Settle stores a value for ttl in place of the claim. appendTo appends the value to its head, which has capacity for
// size bytes more. ctx must never be done.
func (h *Handle) Settle(ctx context.Context, size int, appendTo func([]byte) []byte, ttl time.Duration) error {
	backend, err := h.core.settler("settle")
	if err != nil {
		return err
	}
	thisCall := time.Now()
	firstCall, storedLate, over := h.beginSettle(thisCall)
	if over && storedLate == nil {
		return store.ErrLost
	}
	head := store.NewValue(h.core.id.Token, firstCall, size)
	value := appendTo(head)
	if !bytes.HasPrefix(value, head) {
		panic("lock.SettleAppend: appendTo did not append to its argument")
	}
	if over {
		if bytes.Equal(value, storedLate) { // it is stored
			return nil
		}
		return store.ErrLost
	}
	return h.core.settle(settlement{
		backend: backend, ctx: ctx, value: value, firstCall: firstCall, thisCall: thisCall, ttl: ttl,
	})
}

// beginSettle returns when Settle was first called, and reports whether it is over for this handle: then it stores
// nothing. storedLate is the value, with its head, that was stored while an earlier Settle was pending; nil if there is
// none, or this handle is released.
func (h *Handle) beginSettle(thisCall time.Time) (firstCall time.Time, storedLate []byte, over bool) {
	c := h.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.firstSettle.IsZero() {
		c.firstSettle = thisCall
	}
	if h.released {
		return c.firstSettle, nil, true
	}
	return c.firstSettle, c.settledLate, c.phase >= ending
}

// settle tries once to store the value, and leaves the rest to settleLater.
func (c *Core) settle(s settlement) error {
	done, err := c.trySettle(s, s.ttl)
	if !done && c.settleLater(s) {
		return fmt.Errorf("%w; %w", err, ErrPending)
	}
	return err
}

// trySettle tries once to store the value. It is done, and the lease has ended, unless another try may succeed.
func (c *Core) trySettle(s settlement, ttl time.Duration) (done bool, err error) {
	o := s.backend.Settle(s.ctx, c.id, s.value, ttl)

	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case o.Err != nil && !o.Foreign:
		return false, o.Wrap("settle")
	case o.Foreign, o.Holder == store.Another:
		c.end(store.ErrLost, store.ErrLost)
		return true, store.ErrLost
	case o.Holder == store.OurOther: // the lease has settled another value: only this one came too late
		c.end(context.Canceled, nil)
		return true, store.ErrLost
	}
	if c.pending != nil {
		c.settledLate = s.value
	}
	c.end(context.Canceled, nil)
	return true, nil
}

// settleLater begins to retry a Settle in the background, unless one is pending already. The claim is renewed for it.
// settleLater reports whether a Settle is pending now. None is if the lease or the ttl is over, the Locker is closed,
// or the value is larger than the backlog.
func (c *Core) settleLater(s settlement) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.pending != nil:
		return true
	case c.phase >= ending:
		return false
	}
	s.ctx, s.value = c.config.Group.Base(), slices.Clip(bytes.Clone(s.value)) // without unused capacity
	pending := c.config.Backlog.add(c.config.Group.Context(), len(s.value), s.retryDeadline())
	if pending == nil {
		c.abandon()
		return false
	}
	c.pending, c.abandonAt = pending, time.Time{}
	c.resume()
	c.config.Group.Go(func() {
		finished := false
		defer func() { // also if a hook of the client ends this goroutine
			c.endPending()
			c.config.Backlog.remove(pending, finished)
		}()
		finished = c.keepSettling(s, pending)
	})
	return true
}

// keepSettling retries a Settle after growing pauses. It returns true when the value is stored or no longer has to be,
// and false when it is given up: at the deadline, to make room for a newer one, or after one last try when the Locker
// is closed.
func (c *Core) keepSettling(s settlement, pending *pendingSettle) (finished bool) {
	deadline := s.retryDeadline()
	pauses := background.NewBackoff(maxSettlePause)
	for {
		// pending.ctx ends when the Locker is closed, the value is given up, or the lease is over.
		cutShort := background.Pause(pending.ctx, min(pauses.Next(), time.Until(deadline))) != nil
		lastTry := cutShort && c.config.Group.Closed()
		if c.IsEnding() {
			return true
		}
		givenUp := cutShort && !lastTry
		ttl := s.remainingTTL()
		if givenUp || ttl < minSettleTTL || !time.Now().Before(deadline) {
			return false
		}
		if done, err := c.trySettle(s, ttl); done {
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
