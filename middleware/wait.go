package middleware

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// errManyWait is the Event's error for a duplicate that was not allowed to wait.
var errManyWait = errors.New("middleware: as many requests wait as WithMaxWaiters allows")

// awaitOutcome waits until the key is no longer held, and returns what it holds then; errManyWait at once if too many
// requests wait already.
func (c *call) awaitOutcome() (lock.Claim, error) {
	defer c.waiting.Add(-1)
	if c.waiting.Add(1) > c.maxWaiters {
		return lock.Claim{}, errManyWait
	}
	start := time.Now()
	ctx, cancel := context.WithDeadline(c.r.Context(), c.waitEnd(start))
	defer cancel()
	claim, err := c.locker.Wait(ctx, c.identity.key)
	if c.event != nil {
		c.event.Wait = phaseSince(start)
	}
	return claim, err
}

// waitEnd returns when a wait that begins at start has to end, so that there is time left to send the answer. See
// [WithWait].
func (c *call) waitEnd(start time.Time) time.Time {
	end := start.Add(c.wait)
	if server, ok := c.r.Context().Value(http.ServerContextKey).(*http.Server); ok && server.WriteTimeout > 0 {
		end = earlier(end, c.leaveTime(server.WriteTimeout)) // net/http counts from the request's header, just before entered
	}
	if deadline, ok := c.r.Context().Deadline(); ok {
		end = earlier(end, c.leaveTime(deadline.Sub(c.timing.entered)))
	}
	return end
}

// leaveTime returns when to answer a request that may take d in all.
func (c *call) leaveTime(d time.Duration) time.Time {
	return c.timing.entered.Add(d - min(d/10, 500*time.Millisecond))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// waitFailure returns the Event's error for a wait that ended with err, nil if only its time was over.
func waitFailure(err error) error {
	var wait *lock.WaitError
	switch {
	case errors.As(err, &wait):
		return wait.Look
	case errors.Is(err, errManyWait):
		return err
	}
	return nil
}
