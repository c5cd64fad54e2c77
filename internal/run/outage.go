package run

import (
	"context"
	"errors"

	"github.com/onceguard/onceguard/lock"
)

// tripAfter trips the breaker if err, of any operation on a key, means that Redis did not answer.
func (g *Guard) tripAfter(ctx context.Context, err error) {
	if err != nil && isUnanswered(ctx, err) && !errors.Is(err, lock.ErrLost) {
		g.redis.trip()
	}
}

// mayFailOpen reports whether the operation may run although the claim failed with err. ErrLost means that the claim
// was written and is gone, so another caller may have the key.
func (g *Guard) mayFailOpen(ctx context.Context, err error) bool {
	return g.FailOpen && isUnanswered(ctx, err) && !errors.Is(err, lock.ErrLost)
}

// mayRunWithoutLease reports whether the journal alone decides about a request whose claim failed with err. It does not
// if the deadline of ctx has passed, nor with AtMostOnce, whose holds also protect against instances without a journal.
// It does after ErrLost: even if another request runs, the journal lets only one of the two take effect.
func (g *Guard) mayRunWithoutLease(ctx context.Context, err error) bool {
	return g.Journal != nil && !g.AtMostOnce && isUnanswered(ctx, err)
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
