package onceclient

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"time"
)

// call is one RoundTrip: a loop of tries and pauses. Only the goroutine of RoundTrip uses it.
type call struct {
	transport *transport
	req       *http.Request // with the key and without the body
	key       string        // without quotes
	payload   payload
	began     time.Time
	deadline  time.Time     // when it gives up
	byContext bool          // whether deadline comes from the request's context
	reserve   time.Duration // the part of the time until deadline that is kept for the last try
	attempts  int           // only grows
	maybeSent bool          // whether a try may have sent something; only becomes true
	expired   bool          // whether it ended because there was no time for another try
}

// contextMargin is how long before the deadline of the request's context a call ends. http.Client.Timeout sets that
// deadline, and would replace the call's error by another one.
const contextMargin = 100 * time.Millisecond

// maxRetryAfter is the longest Retry-After that is obeyed in full: more than onceguard sends with default settings, except
// with an unknown outcome.
const maxRetryAfter time.Duration = 15 * time.Second

// maxReserve is the longest time that is kept for the last try.
const maxReserve = time.Second

func newCall(t *transport, req *http.Request, key string, p payload) *call {
	out := req.WithContext(req.Context())
	out.Body, out.GetBody = nil, p.again
	out.Header = req.Header.Clone()
	if out.Header == nil {
		out.Header = http.Header{}
	}
	if _, ok := t.keyIn(out.Header); !ok {
		out.Header.Set(t.header, key)
	}
	c := &call{transport: t, req: out, key: unquote(key), payload: p, began: time.Now()}
	c.deadline = c.began.Add(t.limit)
	if end, ok := req.Context().Deadline(); ok {
		end = end.Add(-min(contextMargin, time.Until(end)/10))
		if end.Before(c.deadline) {
			c.deadline, c.byContext = end, true
		}
	}
	c.reserve = min(maxReserve, c.deadline.Sub(c.began)/10)
	return c
}

// do runs the loop.
func (c *call) do() (*http.Response, error) {
	ctx := c.req.Context()
	for {
		last := c.try()
		last.Pause = c.next(last)
		c.transport.observer(ctx, last.Attempt)
		switch {
		case last.resp != nil && (!last.repeat || c.payload.again == nil):
			return last.resp, nil
		case !c.maybeSent && !last.repeat && ctx.Err() == nil:
			return nil, last.Err
		case last.resp != nil:
			last.resp.Body.Close()
		}
		if last.Pause == 0 {
			return nil, c.gaveUp(last)
		}
		select {
		case <-ctx.Done():
			return nil, c.gaveUp(last)
		case <-time.After(last.Pause):
		}
	}
}

// next returns the pause before another try after last, and 0 if there is none.
func (c *call) next(last outcome) (pause time.Duration) {
	if !last.repeat || c.payload.again == nil || c.req.Context().Err() != nil {
		return 0
	}
	left := time.Until(c.deadline) - c.reserve
	if left <= 0 {
		c.expired = true
		return 0
	}
	return min(c.pauseAfter(last), left)
}

// pauseAfter returns a pause with full jitter, of 1 ns at least, after the Retry-After of the response if it has one. That of an unknown
// outcome is not cut: the server says when it may know more.
func (c *call) pauseAfter(last outcome) time.Duration {
	t := c.transport
	bound := t.backoffMax
	if doublings := c.attempts - 1; doublings < 63 && t.backoffMin <= t.backoffMax>>doublings {
		bound = t.backoffMin << doublings
	}
	jitter := rand.N(bound) + 1
	if last.resp == nil {
		return jitter
	}
	longest := maxRetryAfter
	if last.Problem == OutcomeUnknown {
		longest = math.MaxInt64
	}
	return min(retryAfter(last.resp.Header, time.Now()), longest, math.MaxInt64-jitter) + jitter
}

// gaveUp returns the error of a call that ends after a try which calls for a repetition: its outcome is unknown, unless
// no try has sent anything.
func (c *call) gaveUp(last outcome) error {
	e := &GaveUpError{
		Key: c.key, Attempts: c.attempts, elapsed: time.Since(c.began),
		Status: last.Status, Problem: last.Problem, Err: last.Err,
	}
	ctx := c.req.Context()
	switch {
	case ctx.Err() != nil:
		e.Err = ended(ctx)
		e.timeout = errors.Is(ctx.Err(), context.DeadlineExceeded)
	case c.expired && c.byContext:
		e.Err, e.timeout = context.DeadlineExceeded, true
	default:
		e.timeout = c.expired || isTimeout(last.Err)
	}
	if !c.maybeSent {
		return &unsentError{e}
	}
	return e
}

func isTimeout(err error) bool {
	var timed interface{ Timeout() bool }
	return errors.As(err, &timed) && timed.Timeout()
}
