package middleware

import (
	"errors"
	"time"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware/internal/record"
)

// claim claims the request's key, or looks at one that is too old to run. It sends nothing if the request's deadline has passed, because the run would end at
// once. It sends the claim even if the client has disconnected.
func (c *call) claim() (claim lock.Claim, err error) {
	if err = c.deadlineError(); err != nil {
		return claim, err
	}
	if c.mayRunWithoutLease(errRedisPaused) && c.redis.open() {
		return claim, errRedisPaused
	}
	claim, err = c.lookOrClaim()
	if c.event != nil {
		c.event.Claim = phaseSince(c.timing.asked)
	}
	switch {
	case err == nil:
		c.identity.storageKey = claim.Key
	case c.mayRunWithoutLease(err):
		c.redis.trip()
	}
	return claim, err
}

// sendClaim sends the claim, with the request's fingerprint in its note. With [WithAtMostOnce] the claim has a hold: it
// keeps the key for as long as responses are kept, even if this process dies.
func (c *call) sendClaim() (lock.Claim, error) {
	var room [record.NoteLen]byte
	note := c.encodeNote(room[:0])
	c.timing.asked = c.clock()
	var hold time.Duration
	if c.atMostOnce {
		hold = c.retention
	}
	return c.locker.Claim(c.detached(), c.identity.key, note, hold)
}

// refuseClaim returns the answer to a request whose claim failed with err.
func refuseClaim(err error) *answer {
	switch {
	case errors.Is(err, lock.ErrForeign):
		return refuse(Unreadable, &recordUnreadable, err)
	case errors.Is(err, lock.ErrSettled):
		return refuse(StoreUnavailable, &responseUnconfirmed, err)
	}
	return refuse(StoreUnavailable, &storeUnavailable, err)
}
