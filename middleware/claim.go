package middleware

import (
	"context"
	"errors"

	"github.com/onceguard/onceguard/lock"
)

// claim asks for the key. That the client has left is no reason not to run what it has asked for, and must not be taken
// for a failure of Redis.
func (c *call) claim() (lock.Claim, error) {
	if err := c.r.Context().Err(); errors.Is(err, context.DeadlineExceeded) { // the run would begin at its end
		return lock.Claim{}, err
	}
	if c.mayRunWithoutLease(errRedisPaused) && c.redis.open() {
		return lock.Claim{}, errRedisPaused
	}
	claim, err := c.ask()
	switch {
	case err == nil:
		c.identity.inRedis = claim.Key
	case c.mayRunWithoutLease(err) && !errors.Is(err, lock.ErrSettled):
		c.redis.trip()
	}
	return claim, err
}

// ask claims the key.
func (c *call) ask() (lock.Claim, error) {
	note := c.encodeNote()
	c.timing.asked = c.clock()
	claim, err := c.locker.Claim(&c.values, c.identity.key, note)
	c.waited(c.timing.asked)
	return claim, err
}

// encodeNote returns the note of the request's claim.
func (c *call) encodeNote() []byte {
	sealedFor := ""
	if len(c.codec.Keys) > 0 { // nothing else needs it before the claim has it
		sealedFor = c.storageKey()
	}
	return c.codec.EncodeNote(c.note[:0], sealedFor, c.identity.fingerprints[0])
}

// mayFailOpen reports whether the handler may run although the key could not be claimed: not if the key holds something,
// nor if the request's time is over, nor if the Locker is closed.
func (c *call) mayFailOpen(err error) bool {
	return c.failOpen && !errors.Is(c.r.Context().Err(), context.DeadlineExceeded) &&
		!errors.Is(err, lock.ErrForeign) && !errors.Is(err, lock.ErrSettled) && !errors.Is(err, lock.ErrLost) &&
		!errors.Is(err, lock.ErrClosed)
}

// refuseClaim returns the answer to a request whose key could not be claimed.
func refuseClaim(err error) answer {
	switch {
	case errors.Is(err, lock.ErrForeign):
		return refusal(Unreadable, recordUnreadable, err)
	case errors.Is(err, lock.ErrSettled):
		return refusal(StoreUnavailable, responseUnconfirmed, err)
	}
	return refusal(StoreUnavailable, storeUnavailable, err)
}

// begin sees to it that a request which took its key may run: with WithAtMostOnce the key outlives even this process, and
// there is time left. Claim and Hold together take no longer than one operation may. A request that may not run gives its
// key back, and does not wait for that.
func (c *call) begin(lease *lock.Lease) answer {
	err := c.hold(lease)
	if err == nil && errors.Is(c.r.Context().Err(), context.DeadlineExceeded) {
		err = c.r.Context().Err()
	}
	switch {
	case err == nil && c.journal != nil:
		return c.beginJournaled(lease)
	case err == nil:
		return answer{}
	}
	c.releaseUnused(lease)
	return refusal(StoreUnavailable, notBegun(c.locker.TTL()), err)
}

// releaseUnused gives back the key of a request that does not run; lease may be nil.
func (c *call) releaseUnused(lease *lock.Lease) {
	c.identity.body.Free()
	c.identity.body = nil // the release keeps the call for as long as Redis is silent
	if lease != nil {
		lease.ReleaseInBackground(&c.values)
	}
}

// hold keeps the key for the retention, with WithAtMostOnce.
func (c *call) hold(lease *lock.Lease) error {
	if !c.atMostOnce {
		return nil
	}
	ctx, cancel := context.WithDeadline(&c.values, c.timing.asked.Add(c.locker.OpTimeout()))
	defer cancel()
	start := c.clock()
	err := lease.Hold(ctx, c.retention)
	c.waited(start)
	return err
}
