package middleware

// This file contains what happens to requests while Redis does not answer.

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// errRedisPaused is the error of a claim that was not sent.
var errRedisPaused = errors.New("middleware: Redis has failed less than a second ago, and was not asked")

// breaker keeps requests from waiting for a Redis that has just failed. It is open for redisPause after a failure.
type breaker struct{ until atomic.Int64 } // Unix time in nanoseconds

const redisPause = time.Second

// open reports whether no request should ask Redis.
func (b *breaker) open() bool {
	remaining := b.until.Load() - time.Now().UnixNano()
	return 0 < remaining && remaining <= int64(redisPause) // more remains only if the clock was set back
}

// trip opens the breaker after a failure.
func (b *breaker) trip() { b.until.Store(time.Now().Add(redisPause).UnixNano()) }

// tripAfter trips the breaker if err, of any operation on the key, means that Redis did not answer.
func (c *call) tripAfter(err error) {
	if err == nil || c.deadlineError() != nil { // after the deadline, Redis was perhaps not asked
		return
	}
	if isUnanswered(err) && !errors.Is(err, lock.ErrLost) {
		c.redis.trip()
	}
}

// mayFailOpen reports whether the handler may run although the claim failed with err. See [WithFailOpen]. ErrLost means
// that the claim was written and is gone, so another request may have the key. A key that is too old never runs.
func (c *call) mayFailOpen(err error) bool {
	return c.failOpen && !c.identity.expired && c.deadlineError() == nil && isUnanswered(err) && !errors.Is(err, lock.ErrLost)
}

// mayRunWithoutLease reports whether the journal alone decides about a request whose claim failed with err. It does not
// if the request's deadline has passed, nor with WithAtMostOnce, whose holds also protect against instances without a
// journal. It does after ErrLost: even if another request runs, the journal lets only one of the two take effect.
func (c *call) mayRunWithoutLease(err error) bool {
	return c.journal != nil && !c.atMostOnce && c.deadlineError() == nil && isUnanswered(err)
}

// isUnanswered reports whether err leaves open what the key holds. After the errors listed here the key is known to
// hold something, or the Locker is closed. After ErrLost it is open, too: a caller that must not run then excludes it.
func isUnanswered(err error) bool {
	return !errors.Is(err, lock.ErrForeign) && !errors.Is(err, lock.ErrSettled) && !errors.Is(err, lock.ErrClosed)
}

// deadlineError returns the error of the request's context if its deadline has passed, and otherwise nil. A client that
// disconnected is neither a failure of Redis nor a reason not to run.
func (c *call) deadlineError() error {
	if err := c.r.Context().Err(); errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}
