package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// Release ends the handle, and frees the key if it is the last one. ctx must have no end.
func (h *Handle) Release(ctx context.Context) error {
	if !h.leave() {
		return nil
	}
	return h.core.release(ctx)
}

// ReleaseInBackground is Release for a caller that does not wait for the answer.
func (h *Handle) ReleaseInBackground(ctx context.Context) {
	if h.leave() {
		h.core.config.Group.Go(func() { _ = h.core.release(ctx) }) // tried again like any release
	}
}

// release tries once, and leaves the rest to the background if that got no answer.
func (c *Core) release(ctx context.Context) error {
	c.mu.Lock()
	if c.phase == ended {
		defer c.mu.Unlock()
		return c.verdict
	}
	first := c.phase < ending
	c.mu.Unlock()

	done, err := c.tryRelease(ctx)
	if group := c.config.Group; !done && first && !group.Closed() {
		group.Go(func() {
			background.Retry(group.Context(), c.keptUntil(), func() bool {
				done, _ := c.tryRelease(ctx)
				return done
			})
		})
	}
	return err
}

// tryRelease tries once. It is not done as long as nobody has confirmed it.
func (c *Core) tryRelease(ctx context.Context) (done bool, err error) {
	c.mu.Lock()
	if c.phase == ended {
		defer c.mu.Unlock()
		return true, c.verdict
	}
	// A release that arrived makes room for somebody else, whose claim is no loss of ours. But if the lease had run out,
	// or was lost, before the first try, then it is.
	valid, released := c.valid(), c.released
	c.released = released || valid
	c.forward(ending, context.Canceled)
	expiry := later(c.expiry, c.mayLast)
	c.mu.Unlock()

	o := c.backend.Release(ctx, c.id, expiry)

	c.mu.Lock()
	defer c.mu.Unlock()
	var verdict error
	switch {
	case o.Foreign:
		verdict = fmt.Errorf("%w: %w", store.ErrLost, store.ErrForeign)
	case o.Err != nil:
		return false, o.Wrap("release")
	case o.Holder == store.Another && !released && !(o.Unsure && valid):
		verdict = store.ErrLost
	}
	c.finish(context.Canceled, verdict)
	return true, c.verdict
}

// keptUntil returns how long the key stays taken if nobody releases it, or how long that is worth trying.
func (c *Core) keptUntil() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	left := later(c.expiry, c.mayLast).Sub(now) + c.mayHold
	return now.Add(min(left, maxRetry))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
