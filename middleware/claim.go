package middleware

import (
	"context"
	"errors"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware/internal/record"
)

// claim claims the request's key, unless its deadline has passed. It does not heed a client that disconnected: that is
// neither a failure of Redis nor a reason not to run.
func (c *call) claim() (lock.Claim, error) {
	if err := c.r.Context().Err(); errors.Is(err, context.DeadlineExceeded) { // the run would end at once
		return lock.Claim{}, err
	}
	if c.mayRunWithoutLease(errRedisPaused) && c.redis.open() {
		return lock.Claim{}, errRedisPaused
	}
	claim, err := c.sendClaim()
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

// sendClaim sends the claim, with the request's fingerprint as its note.
func (c *call) sendClaim() (lock.Claim, error) {
	var room [record.NoteLen]byte
	note := c.encodeNote(room[:0])
	c.timing.asked = c.clock()
	return c.locker.Claim(c.values(), c.identity.key, note)
}

// encodeNote returns the note of the request's claim, in room if it fits.
func (c *call) encodeNote(room []byte) []byte {
	sealedFor := ""
	if len(c.codec.Keys) > 0 { // only a seal needs it before the claim returns it
		sealedFor = c.storageKey()
	}
	note := record.Note{Fingerprint: c.identity.fingerprints[0], Journaled: c.journal != nil}
	return c.codec.EncodeNote(room, sealedFor, note)
}

// mayFailOpen reports whether the handler may run although the claim failed with err. See [WithFailOpen].
func (c *call) mayFailOpen(err error) bool {
	return c.failOpen && !errors.Is(c.r.Context().Err(), context.DeadlineExceeded) &&
		!errors.Is(err, lock.ErrForeign) && !errors.Is(err, lock.ErrSettled) && !errors.Is(err, lock.ErrLost) &&
		!errors.Is(err, lock.ErrClosed)
}

// refuseClaim returns the answer to a request whose claim failed with err.
func refuseClaim(err error) answer {
	switch {
	case errors.Is(err, lock.ErrForeign):
		return refuse(Unreadable, &recordUnreadable, err)
	case errors.Is(err, lock.ErrSettled):
		return refuse(StoreUnavailable, &responseUnconfirmed, err)
	}
	return refuse(StoreUnavailable, &storeUnavailable, err)
}
