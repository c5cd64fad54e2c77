package run

import (
	"errors"
	"sync/atomic"
	"time"
)

// errRedisPaused is the error of a claim that was not sent.
var errRedisPaused = errors.New("onceguard: Redis has failed less than a second ago, and was not asked")

// breaker keeps callers from waiting for a Redis that has just failed. It is open for redisPause after a failure.
type breaker struct{ until atomic.Int64 } // Unix time in nanoseconds

const redisPause = time.Second

// open reports whether no caller should ask Redis.
func (b *breaker) open() bool {
	remaining := b.until.Load() - time.Now().UnixNano()
	return 0 < remaining && remaining <= int64(redisPause) // more remains only if the clock was set back
}

// trip opens the breaker after a failure.
func (b *breaker) trip() { b.until.Store(time.Now().Add(redisPause).UnixNano()) }
