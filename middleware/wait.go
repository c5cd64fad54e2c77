package middleware

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// errTooManyWaiting is the Event's error for a duplicate that was not allowed to wait.
var errTooManyWaiting = errors.New("middleware: too many requests are waiting (WithMaxWaiters)")

// awaitOutcome waits until the key is no longer held, and returns what it then holds. If too many requests are
// waiting, it returns errTooManyWaiting at once.
func (c *call) awaitOutcome() (lock.Claim, error) {
	defer c.waiting.Add(-1)
	if c.waiting.Add(1) > c.maxWaiters {
		return lock.Claim{}, errTooManyWaiting
	}
	start := time.Now()
	ctx, cancel := context.WithDeadline(c.r.Context(), c.waitDeadline(start))
	defer cancel()
	claim, err := c.locker.Wait(ctx, c.identity.key)
	if c.event != nil {
		c.event.Wait = phaseSince(start)
	}
	return claim, err
}

// waitDeadline returns the deadline of a wait that begins at start. It leaves time to send the answer. See [WithWait].
func (c *call) waitDeadline(start time.Time) time.Time {
	deadline := start.Add(c.wait)
	if server, ok := c.r.Context().Value(http.ServerContextKey).(*http.Server); ok && server.WriteTimeout > 0 {
		// net/http counts from when it has read the request's header, which is just before entered.
		deadline = earlier(deadline, c.timeToAnswer(server.WriteTimeout))
	}
	if outer, ok := c.r.Context().Deadline(); ok {
		deadline = earlier(deadline, c.timeToAnswer(outer.Sub(c.timing.entered)))
	}
	return deadline
}

// timeToAnswer returns the latest time to begin the answer to a request that may take d in all.
func (c *call) timeToAnswer(d time.Duration) time.Time {
	return c.timing.entered.Add(d - min(d/10, 500*time.Millisecond))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// waitFailure returns the Event's error for a wait that ended with err. It is nil if only the deadline had passed,
// or the client has disconnected.
func waitFailure(err error) error {
	var wait *lock.WaitError
	switch {
	case errors.As(err, &wait):
		return wait.Look
	case errors.Is(err, errTooManyWaiting):
		return err
	}
	return nil
}
