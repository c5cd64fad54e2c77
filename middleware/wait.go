package middleware

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// errManyWait is the Event's error of a request that was not let wait.
var errManyWait = errors.New("middleware: as many requests wait as WithMaxWaiters allows")

// awaitOutcome waits until nobody works under the key any more. It returns at once when there is no time for that.
func (c *call) awaitOutcome() (lock.Claim, error) {
	defer c.waiting.Add(-1)
	if c.waiting.Add(1) > c.maxWaiters {
		return lock.Claim{}, errManyWait
	}
	ctx, cancel := context.WithDeadline(c.r.Context(), c.waitEnd())
	defer cancel()
	return c.locker.Wait(ctx, c.identity.key)
}

// waitEnd returns when a wait that begins now is over: as [WithWait] says, or earlier, so that there is time left to send
// the answer in.
func (c *call) waitEnd() time.Time {
	end := time.Now().Add(c.wait)
	if server, ok := c.r.Context().Value(http.ServerContextKey).(*http.Server); ok && server.WriteTimeout > 0 {
		end = earlier(end, c.leaveTime(server.WriteTimeout)) // net/http counts from the header of the request, just before
	}
	if deadline, ok := c.r.Context().Deadline(); ok {
		end = earlier(end, c.leaveTime(deadline.Sub(c.timing.entered)))
	}
	return end
}

// leaveTime returns when to answer a request that may take as long as d.
func (c *call) leaveTime(d time.Duration) time.Time {
	return c.timing.entered.Add(d - min(d/10, 500*time.Millisecond))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// trouble returns what an observer should know of the error that a wait ended with, nil if only its time was over.
func trouble(err error) error {
	var wait *lock.WaitError
	switch {
	case errors.As(err, &wait):
		return wait.Look
	case errors.Is(err, errManyWait):
		return err
	}
	return nil
}
