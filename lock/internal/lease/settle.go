package lease

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

// ErrPending says that a value could not be stored yet, and that Settle goes on in the background.
var ErrPending = errors.New("lock: storing goes on in the background")

const (
	maxRetry        = time.Hour        // how long a Settle or a Release is tried again
	maxSettlePause  = 30 * time.Second // between two tries of a Settle
	leastSettleTime = time.Millisecond // for a value to stay
)

// settlement is a value that a Settle is to leave behind.
type settlement struct {
	backend Settler
	ctx     context.Context // never done
	value   []byte          // with its head
	called  time.Time       // when Settle was first called: ttl counts from then
	begun   time.Time       // when this call was: the background counts from then
	ttl     time.Duration
}

// end returns until when the background may go on.
func (s *settlement) end() time.Time {
	end, over := s.begun.Add(maxRetry), s.called.Add(s.ttl)
	if over.Before(end) {
		return over
	}
	return end
}

// left returns how long the value is to stay if it is stored now.
func (s *settlement) left() time.Duration {
	return (s.ttl - time.Since(s.called)).Truncate(leastSettleTime)
}

// Settle leaves a value behind for ttl. appendTo appends it to its head, behind which there is room for size bytes. ctx
// must have no end.
func (h *Handle) Settle(ctx context.Context, size int, appendTo func([]byte) []byte, ttl time.Duration) error {
	backend, err := h.core.settler("settle")
	if err != nil {
		return err
	}
	called, before, over := h.beginSettle()
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
	return h.core.settle(settlement{backend: backend, ctx: ctx, value: value, called: called, begun: time.Now(), ttl: ttl})
}

// beginSettle returns when Settle was first called, what a Settle in the background has left behind, and whether this
// handle may settle no more.
func (h *Handle) beginSettle() (called time.Time, before []byte, over bool) {
	c := h.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settleCalled.IsZero() {
		c.settleCalled = time.Now()
	}
	if h.released {
		return c.settleCalled, nil, true
	}
	return c.settleCalled, c.settled, c.phase >= ending
}

// settle tries once, and leaves the rest to the background if that got no answer.
func (c *Core) settle(s settlement) error {
	done, err := c.trySettle(s, s.ttl)
	if !done && c.settleLater(s) {
		return fmt.Errorf("%w; %w", err, ErrPending)
	}
	return err
}

// trySettle tries once. It is not done as long as another try may succeed.
func (c *Core) trySettle(s settlement, ttl time.Duration) (done bool, err error) {
	o := s.backend.Settle(s.ctx, c.id, s.value, ttl)

	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case o.Err != nil && !o.Foreign:
		return false, o.Wrap("settle")
	case o.Holder == store.OurOther:
		c.finish(context.Canceled, nil)
		return true, store.ErrLost
	case o.Foreign, o.Holder == store.Another:
		c.finish(store.ErrLost, store.ErrLost)
		return true, store.ErrLost
	}
	if c.late != nil {
		c.settled = s.value
	}
	c.finish(context.Canceled, nil)
	return true, nil
}

// settleLater goes on with a Settle in the background, and keeps the claim alive for it. It reports whether one goes on:
// not if the lease is over, the Locker is closed, the value's time is over, or it is larger than all that may wait.
func (c *Core) settleLater(s settlement) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.late != nil:
		return true
	case c.phase >= ending:
		return false
	}
	s.value = slices.Clip(bytes.Clone(s.value)) // without the room that it was made with
	late := c.config.Backlog.add(c.config.Group.Context(), len(s.value), s.end())
	if late == nil {
		c.abandon()
		return false
	}
	c.late, c.abandonAt = late, time.Time{}
	c.resume()
	c.config.Group.Go(func() {
		stored := false
		defer func() { // even when a hook of the client ends this goroutine
			c.endLate()
			c.config.Backlog.remove(late, stored)
		}()
		stored = c.keepSettling(s, late)
	})
	return true
}

// keepSettling tries a Settle again and again, until there is nothing left to try for. It reports whether the value was
// stored, or no longer has to be.
func (c *Core) keepSettling(s settlement, late *lateSettle) (stored bool) {
	end := s.end()
	for pauses := background.NewBackoff(maxSettlePause); ; {
		cut := background.Pause(late.ctx, min(pauses.Next(), time.Until(end))) != nil // closed, given up, or over
		left := s.left()
		switch {
		case c.IsOver():
			return true
		case cut && !c.config.Group.Closed(), left < leastSettleTime, !time.Now().Before(end):
			return false
		}
		if done, err := c.trySettle(s, left); done {
			return err == nil
		}
		if cut { // it was the last try, for Close
			return false
		}
	}
}

// endLate ends the time for which a claim is kept alive for a Settle. A later one that fails has a time of its own.
func (c *Core) endLate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late.cancel()
	c.late = nil
	c.abandon()
}
