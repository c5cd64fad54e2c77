package run

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/onceguard/onceguard/lock"
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

// tripAfter opens the breaker if err, of any command for a key, means that Redis did not answer.
func (b *breaker) tripAfter(ctx context.Context, err error) {
	if err != nil && isUnanswered(ctx, err) && !errors.Is(err, lock.ErrLost) {
		b.until.Store(time.Now().Add(redisPause).UnixNano())
	}
}

// isUnanswered reports whether err leaves open what the key holds. After the errors listed here the key is known to
// hold something, or the Locker is closed. After the deadline of ctx, Redis was perhaps not asked. After ErrLost it is
// open, too: a caller that must not run then excludes it.
func isUnanswered(ctx context.Context, err error) bool {
	return deadlineError(ctx) == nil && !errors.Is(err, lock.ErrForeign) && !errors.Is(err, lock.ErrSettled) && !errors.Is(err, lock.ErrClosed)
}

// deadlineError returns the error of ctx if its deadline has passed, and otherwise nil. A client that disconnected is
// neither a failure of Redis nor a reason not to run.
func deadlineError(ctx context.Context) error {
	if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}
