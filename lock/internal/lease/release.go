package lease

// How a claim is released: once by Release and, if that fails, again in the background. Core.mu is not held during a
// try.

import (
	"context"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/store"
)

// Release ends the handle and, if it is the last one, releases the claim. ctx must never be done.
func (h *Handle) Release(ctx context.Context) error {
	if !h.markReleased() {
		return nil
	}
	return h.core.release(ctx)
}

// ReleaseInBackground is Release, except that it does not wait for the reply.
func (h *Handle) ReleaseInBackground(ctx context.Context) {
	if h.markReleased() {
		h.core.config.Group.Go(func() { _ = h.core.release(ctx) }) // release retries
	}
}

// release tries to release the claim. If that fails, the first call keeps trying in the background.
func (c *Core) release(ctx context.Context) error {
	c.mu.Lock()
	if c.phase == ended {
		defer c.mu.Unlock()
		return c.releaseErr
	}
	first := c.phase < ending
	c.mu.Unlock()

	done, err := c.tryRelease(ctx)
	if group := c.config.Group; !done && first && !group.Closed() {
		group.Go(func() {
			background.Retry(group.Context(), c.keptUntil(), func() bool {
				done, _ := c.tryRelease(group.Base())
				return done
			})
		})
	}
	return err
}

// tryRelease tries once to release the claim. It is done when the backend has confirmed or refused that.
func (c *Core) tryRelease(ctx context.Context) (done bool, err error) {
	c.mu.Lock()
	if c.phase == ended {
		defer c.mu.Unlock()
		return true, c.releaseErr
	}
	// An earlier try, or one whose reply was lost, may have freed the key while the lease was valid. Another's claim is
	// then a legitimate successor, and the lease was not lost.
	wasValid, releasedBefore := c.valid(), c.released
	c.released = releasedBefore || wasValid
	c.advance(ending, context.Canceled)
	latestExpiry := c.latestExpiry
	c.mu.Unlock()

	o := c.backend.Release(ctx, c.id, latestExpiry)

	c.mu.Lock()
	defer c.mu.Unlock()
	mayBeSuccessor := releasedBefore || o.Unsure && wasValid
	var releaseErr error
	switch {
	case o.Foreign:
		releaseErr = fmt.Errorf("%w: %w", store.ErrLost, store.ErrForeign)
	case o.Err != nil:
		return false, o.Wrap("release")
	case o.Holder == store.Another && !mayBeSuccessor:
		releaseErr = store.ErrLost
	}
	if releaseErr != nil {
		c.countLost()
	}
	c.end(context.Canceled, releaseErr)
	return true, c.releaseErr
}

// keptUntil returns when the claim expires if no release arrives, but at most maxRetry from now.
func (c *Core) keptUntil() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	left := c.latestExpiry.Sub(now) + c.longestHold
	return now.Add(min(left, maxRetry))
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
