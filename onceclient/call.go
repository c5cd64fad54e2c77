package onceclient

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// call is one RoundTrip: a loop of tries and pauses, which go-retryablehttp runs. Only the goroutine of RoundTrip uses
// it.
type call struct {
	transport *Transport
	req       *http.Request // with the key and without the body
	key       string        // without quotes
	payload   payload
	began     time.Time
	deadline  time.Time     // when it gives up
	byContext bool          // whether deadline comes from the request's context
	reserve   time.Duration // the part of the time until deadline that is kept for the last try
	attempts  int           // only grows
	last      outcome       // of the latest try
	pause     time.Duration // before the next try
	expired   bool          // whether it ended because there was no time for another try
	unsent    bool          // whether its only try failed before anything was sent
}

// outcome is the result of a try.
type outcome struct {
	status     int           // 0 without a response
	problem    string        // the type of the response's problem document, if it was read
	err        error         // nil with a response
	repeat     bool          // whether the response, or the error, calls for a repetition
	retryAfter time.Duration // 0 without a Retry-After
	duration   time.Duration // of the try
}

// contextMargin is how long before the deadline of the request's context a call ends. http.Client.Timeout sets that
// deadline, and would replace the call's error by another one.
const contextMargin = 100 * time.Millisecond

// maxReserve is the longest time that is kept for the last try.
const maxReserve = time.Second

func newCall(t *Transport, req *http.Request, key string, p payload) *call {
	out := req.WithContext(req.Context())
	out.Body, out.GetBody = nil, nil
	out.RequestURI = "" // a reverse proxy leaves the server's, and http.Client rejects it
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

// do runs the loop. Each call has its own retryablehttp.Client, because go-retryablehttp passes no state to Backoff.
// The client's transport has no CloseIdleConnections: go-retryablehttp calls that after every failure, and the base may
// be shared.
func (c *call) do() (*http.Response, error) {
	client := retryablehttp.Client{
		HTTPClient: &http.Client{
			Transport:     tryer(c.try),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		RetryMax:     math.MaxInt,
		CheckRetry:   c.check,
		Backoff:      func(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return c.pause },
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	resp, err := client.Do(&retryablehttp.Request{Request: c.req})
	switch {
	case err == nil && (!c.last.repeat || c.payload.again == nil):
		return resp, nil
	case c.attempts == 0: // http.Client has rejected the request
		c.payload.close()
		return nil, withoutURL(err)
	case c.unsent:
		return nil, c.last.err
	case resp != nil:
		resp.Body.Close()
	}
	return nil, c.gaveUp()
}

// tryer is an http.RoundTripper for one call.
type tryer func(*http.Request) (*http.Response, error)

func (t tryer) RoundTrip(req *http.Request) (*http.Response, error) { return t(req) }

// check decides whether there is another try, and sets the pause before it. It is go-retryablehttp's CheckRetry.
func (c *call) check(ctx context.Context, _ *http.Response, err error) (bool, error) {
	switch {
	case c.attempts == 0:
		return false, nil
	case err != nil && c.last.err == nil: // http.Client's own, such as an invalid Location
		c.last.err = withoutURL(err)
	case err != nil && c.last.repeat:
		c.last.repeat = !unsendable(c.last.err)
		c.unsent = c.attempts == 1 && !c.last.repeat && ctx.Err() == nil
	}
	left := time.Until(c.deadline) - c.reserve
	again := c.last.repeat && c.payload.again != nil && ctx.Err() == nil
	c.expired = again && left <= 0
	again = again && !c.expired
	c.pause = 0
	if again {
		c.pause = min(c.nextPause(), left)
	}
	c.transport.observer(c.req.Context(), Attempt{
		Number: c.attempts, Method: c.req.Method, Status: c.last.status, Problem: c.last.problem, Err: c.last.err,
		Duration: c.last.duration, Elapsed: time.Since(c.began), Again: again, Pause: c.pause,
	})
	return again, nil
}

// nextPause returns the pause with full jitter, after Retry-After if the response has one.
func (c *call) nextPause() time.Duration {
	t := c.transport
	bound := t.backoffMax
	if doublings := c.attempts - 1; doublings < 63 && t.backoffMin <= t.backoffMax>>doublings {
		bound = t.backoffMin << doublings
	}
	jitter := rand.N(bound)
	return min(c.last.retryAfter, t.maxRetryAfter, math.MaxInt64-jitter) + jitter
}

// gaveUp returns the error of a call whose outcome is unknown after the last try.
func (c *call) gaveUp() error {
	e := &GaveUpError{
		Key: c.key, Attempts: c.attempts, Elapsed: time.Since(c.began),
		Status: c.last.status, Problem: c.last.problem, Err: c.last.err,
	}
	ctx := c.req.Context()
	switch {
	case ctx.Err() != nil:
		e.Err = ended(ctx)
		e.timeout = errors.Is(ctx.Err(), context.DeadlineExceeded)
	case c.expired && c.byContext:
		e.Err, e.timeout = context.DeadlineExceeded, true
	default:
		e.timeout = c.expired || isTimeout(c.last.err)
	}
	return e
}

func isTimeout(err error) bool {
	var timed interface{ Timeout() bool }
	return errors.As(err, &timed) && timed.Timeout()
}

// withoutURL returns the error that http.Client has wrapped in a *url.Error: the outer http.Client will wrap it again.
func withoutURL(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}
