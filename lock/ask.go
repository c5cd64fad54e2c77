package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxTries is how often a command is sent at the most, within its time limit.
const maxTries = 4

// answer is what came of asking Redis.
type answer struct {
	reply
	unsure bool  // some try may have arrived although its reply did not
	err    error // none of the tries was answered, or the answer is an error
}

// wrap returns the answer's error, with what was tried.
func (a answer) wrap(doing string) error {
	if a.err == nil {
		return nil
	}
	return fmt.Errorf("lock: %s: %w", doing, a.err)
}

// errNoAnswer is the cause of a context that ended because the time for one operation was up.
type errNoAnswer time.Duration

func (e errNoAnswer) Error() string {
	return "no answer from Redis within " + time.Duration(e).String()
}

func (e errNoAnswer) Unwrap() error { return context.DeadlineExceeded }

// ask calls send until Redis has answered, a few times at the most, and returns within the time for one operation.
//
// The sending has a goroutine of its own, because go-redis does not heed a context while it waits on a socket, unless
// Options.ContextTimeoutEnabled is set. An answer that comes when ask has returned is given to late, if there is one.
func (b *base) ask(ctx context.Context, send func(context.Context) (reply, error), late func(answer)) answer {
	ctx, cancel := context.WithTimeoutCause(ctx, b.opTimeout, errNoAnswer(b.opTimeout))
	answers := make(chan answer, 1)
	b.work.run(func() {
		defer cancel()
		answers <- try(ctx, send)
	})
	select {
	case a := <-answers:
		return a
	case <-ctx.Done():
	}
	select {
	case a := <-answers: // the answer itself cancels ctx
		return a
	default:
	}
	if late != nil {
		b.work.run(func() { late(<-answers) })
	}
	return answer{unsure: true, err: context.Cause(ctx)}
}

// try sends until there is an answer that another try would not change.
func try(ctx context.Context, send func(context.Context) (reply, error)) answer {
	var a answer
	for n := 1; ; n++ {
		var err error
		if a.reply, err = send(ctx); err == nil {
			return a
		}
		a.unsure = a.unsure || mayHaveArrived(err)
		if n == maxTries || !mayPass(err) {
			a.err = err
			return a
		}
		if pause(ctx, jitter(10*time.Millisecond<<n)) != nil {
			a.err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
			return a
		}
	}
}

// mayHaveArrived tells whether a try that failed may have been carried out nevertheless: not if Redis answered, and
// not if no connection was to be had.
func mayHaveArrived(err error) bool {
	var dial *net.OpError
	switch {
	case isReply(err):
		return false
	case errors.As(err, &dial) && dial.Op == "dial":
		return false
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		return false
	}
	return true
}

// mayPass tells whether another try may succeed: whatever the network did, and what a server says while it starts, or
// while another one takes its place.
func mayPass(err error) bool {
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, ErrNotReplicated) {
		return false
	}
	return !isReply(err) || redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsMasterDownError(err) ||
		redis.IsClusterDownError(err) || redis.IsTryAgainError(err) || redis.IsMaxClientsError(err) || isMoved(err)
}

// isMoved tells whether err sends us to another node. go-redis follows that by itself, but not on one connection.
func isMoved(err error) bool {
	_, moved := redis.IsMovedError(err)
	_, ask := redis.IsAskError(err)
	return moved || ask
}

// isReply tells whether err is an error that the server sent.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// isForeign tells whether err says that the key holds another type. Redis 6 puts it into the middle of a script's
// error.
func isForeign(err error) bool {
	return isReply(err) && strings.Contains(err.Error(), "WRONGTYPE")
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// jitter returns a random time from [0, d).
func jitter(d time.Duration) time.Duration { return rand.N(d) }
