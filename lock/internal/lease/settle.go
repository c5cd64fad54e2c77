package lease

// How a value is stored: once by Settle and, if that fails, again in a goroutine for each value, which backlog.go
// counts. Core.mu is not held during a try.

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

// ErrPending is the error of a Settle whose value is not stored yet, and which is retried in the background.
var ErrPending = errors.New("lock: storing goes on in the background")

const (
	maxRetry       = time.Hour        // how long a Settle or a Release is retried in the background
	maxSettlePause = 30 * time.Second // between two tries of a Settle
	minSettleTTL   = time.Millisecond // a value that would expire sooner is not stored
)

// settlement is one call of Settle.
type settlement struct {
	backend Settler
	ctx     context.Context // never done
	value   []byte          // with its head
	called  time.Time       // when Settle was first called on this lease: ttl counts from it
	begun   time.Time       // when this Settle was called: maxRetry counts from it
	ttl     time.Duration
}

// giveUpAt returns when the background stops retrying.
func (s *settlement) giveUpAt() time.Time {
	end, over := s.begun.Add(maxRetry), s.called.Add(s.ttl)
	if over.Before(end) {
		return over
	}
	return end
}

// remaining returns the TTL of the value if it is stored now.
func (s *settlement) remaining() time.Duration {
	return (s.ttl - time.Since(s.called)).Truncate(minSettleTTL)
}

// Settle stores a value for ttl in place of the claim. appendTo appends the value to its head, which has capacity for
// size bytes more. ctx must never be done.
func (h *Handle) Settle(ctx context.Context, size int, appendTo func([]byte) []byte, ttl time.Duration) error {
	backend, err := h.core.settler("settle")
	if err != nil {
		return err
	}
	now := time.Now()
	called, before, over := h.beginSettle(now)
	if over && before == nil {
		return store.ErrLost
	}
	head := store.NewValue(h.core.id.Token, called, size)
	value := appendTo(head)
	if !bytes.HasPrefix(value, head) {
		panic("lock.SettleAppend: appendTo has not appended")
	}
	switch {
	case over && bytes.Equal(value, before):
		return nil
	case over:
		return store.ErrLost
	}
	return h.core.settle(settlement{backend: backend, ctx: ctx, value: value, called: called, begun: now, ttl: ttl})
}

// beginSettle returns when Settle was first called, and reports whether this handle can no longer settle. before is the
// value that a pending Settle has stored in that case, and nil if none has.
func (h *Handle) beginSettle(now time.Time) (called time.Time, before []byte, over bool) {
	c := h.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settleCalled.IsZero() {
		c.settleCalled = now
	}
	if h.released {
		return c.settleCalled, nil, true
	}
	return c.settleCalled, c.settledLate, c.phase >= ending
}

// settle tries to store the value. If that fails, it retries in the background if settleLater allows that, and the error
// then wraps ErrPending.
func (c *Core) settle(s settlement) error {
	done, err := c.trySettle(s, s.ttl)
	if !done && c.settleLater(s) {
		return fmt.Errorf("%w; %w", err, ErrPending)
	}
	return err
}

// trySettle tries once to store the value. done is false if another try may succeed.
func (c *Core) trySettle(s settlement, ttl time.Duration) (done bool, err error) {
	o := s.backend.Settle(s.ctx, c.id, s.value, ttl)

	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case o.Err != nil && !o.Foreign:
		return false, o.Wrap("settle")
	case o.Holder == store.OurOther: // this lease has settled: only this value came too late
		c.end(context.Canceled, nil)
		return true, store.ErrLost
	case o.Foreign, o.Holder == store.Another:
		c.end(store.ErrLost, store.ErrLost)
		return true, store.ErrLost
	}
	if c.pending != nil {
		c.settledLate = s.value
	}
	c.end(context.Canceled, nil)
	return true, nil
}

// settleLater retries a Settle in the background, and keeps the claim alive until that ends. It reports whether a
// Settle is pending now: not if the lease is over, the Locker is closed, the ttl is over, or the value is larger than
// the backlog.
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
	pending := c.config.Backlog.add(c.config.Group.Context(), len(s.value), s.giveUpAt())
	if pending == nil {
		c.abandon()
		return false
	}
	c.pending, c.abandonAt = pending, time.Time{}
	c.resume()
	c.config.Group.Go(func() {
		stored := false
		defer func() { // also if a hook of the client ends this goroutine
			c.endPending()
			c.config.Backlog.remove(pending, stored)
		}()
		stored = c.keepSettling(s, pending)
	})
	return true
}

// keepSettling retries a Settle after growing pauses until it is done, or giveUpAt is reached, or the value is
// given up to make room, or the Locker is closed, which gets one last try. It reports whether the value was stored or no longer
// has to be.
func (c *Core) keepSettling(s settlement, pending *pendingSettle) (stored bool) {
	end := s.giveUpAt()
	for pauses := background.NewBackoff(maxSettlePause); ; {
		// The pause is cut short when the Locker is closing, the value was given up to make room, or the lease has
		// ended. Only closing gets one more try.
		cutShort := background.Pause(pending.ctx, min(pauses.Next(), time.Until(end))) != nil
		lastTry := cutShort && c.config.Group.Closed()
		ttl := s.remaining()
		switch {
		case c.IsOver():
			return true
		case cutShort && !lastTry, ttl < minSettleTTL, !time.Now().Before(end):
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

// endPending stops keeping the claim alive for a pending Settle, and lets the lease run out.
func (c *Core) endPending() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending.cancel()
	c.pending = nil
	c.abandon()
}
