package middleware

import (
	"context"
	"errors"

	"github.com/onceguard/onceguard/lock"
)

// attend answers a request whose key is held by another one, after waiting for that if it is to. It never runs the
// handler: when the other one has left no response, the client is told to try again, and then may become the first.
func (c *call) attend(note []byte) {
	if c.wait == 0 {
		c.meet(note, InFlight, inFlight)
		return
	}
	if !c.isSame(note) {
		return
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), c.wait)
	defer cancel()
	claim, err := c.locker.Wait(ctx, c.key)
	switch {
	case errors.Is(err, lock.ErrHeld), err != nil && ctx.Err() != nil:
		c.refuse(InFlight, inFlight, lastLook(err))
	case errors.Is(err, lock.ErrForeign):
		c.refuse(Unreadable, recordUnreadable, err)
	case err != nil:
		c.refuse(StoreUnavailable, storeUnavailable, err)
	case claim.State == lock.Settled:
		c.replay(claim.Value)
	case claim.State == lock.Abandoned:
		c.meetAbandoned(claim.Note)
	default:
		c.refuse(Freed, runFailed, nil)
	}
}

// lastLook returns why the last look of a wait failed, nil if it did not.
func lastLook(err error) error {
	var wait *lock.WaitError
	if errors.As(err, &wait) {
		return wait.Look
	}
	return nil
}
