package lease

// Release removes the claim. It tries once: it calls the backend, which sends up to four times. If that fails, the backend
// releases the claim in the background (KeepReleasing, in store/unneeded.go). Core.mu is not held during a try.

import (
	"context"

	"github.com/onceguard/onceguard/lock/internal/store"
)

// Release ends the handle and, if it is the last one, releases the claim. ctx must never be done.
func (h *Handle) Release(ctx context.Context) error { return h.release(ctx, false) }

// ReleaseHeld is Release, unless the lease is over or abandoned, or Settle was called: then it does nothing. ctx must never
// be done.
func (h *Handle) ReleaseHeld(ctx context.Context) error { return h.release(ctx, true) }

func (h *Handle) release(ctx context.Context, onlyHeld bool) error {
	if !h.markReleased(onlyHeld) {
		return nil
	}
	return h.core.release(ctx)
}

// ReleaseInBackground is Release, except that it does not wait for the reply.
func (h *Handle) ReleaseInBackground(ctx context.Context) {
	if h.markReleased(false) {
		h.core.config.Group.Go(func() { _ = h.core.release(ctx) }) // the error is ignored: release retries
	}
}

// release tries to release the claim. If that fails, the first call has it released in the background.
func (c *Core) release(ctx context.Context) error {
	firstCall := !c.isReleasedOrSettled()
	done, err := c.tryRelease(ctx)
	if firstCall {
		c.keepReleasing(done)
	}
	return err
}

// keepReleasing has the claim released in the background, unless it is gone and cannot return. gone reports whether Redis
// has answered a Release or a Settle. After that a command without a reply may write the claim again, once the key is free.
func (c *Core) keepReleasing(gone bool) {
	if gone && !c.id.MayReturn {
		return
	}
	u := store.Unneeded{Key: c.id.Key, Token: c.id.Token, HasHold: c.id.Hold > 0, MayReturn: c.id.MayReturn, Gone: gone}
	if !u.HasHold {
		c.mu.Lock()
		defer c.mu.Unlock()
		u.Expiry = c.latestExpiry
	}
	c.backend.KeepReleasing(u)
}

// tryRelease tries once to release the claim, unless the lease has ended. done reports whether the backend has
// confirmed or refused the release.
func (c *Core) tryRelease(ctx context.Context) (done bool, err error) {
	c.mu.Lock()
	if c.phase == ended {
		defer c.mu.Unlock()
		return true, c.releaseErr
	}
	// An earlier call of tryRelease, or a command of this call whose reply is lost, may have freed the key while the
	// lease was valid. If another caller has the key after that, it is a legitimate successor, and the lease was not
	// lost.
	wasValid, releasedBefore := c.valid(), c.releasedWhileValid
	c.releasedWhileValid = releasedBefore || wasValid
	c.advance(releasing, context.Canceled)
	c.mu.Unlock()

	o := c.backend.Release(ctx, c.id.Key, c.id.Token, c.id.Written, c.id.Hold > 0)

	c.mu.Lock()
	defer c.mu.Unlock()
	if o.Err != nil {
		return false, o.Wrap("release")
	}
	isSettled := c.phase == ended // by a Settle beside this Release
	mayBeSuccessor := isSettled || releasedBefore || o.Unsure && wasValid
	var releaseErr error
	if o.Holder == store.Another && !mayBeSuccessor {
		releaseErr = store.ErrLost
		c.countLost()
	}
	c.end(context.Canceled, releaseErr)
	return true, c.releaseErr
}
