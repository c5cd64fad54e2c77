package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

const (
	maxTries   = 4                     // how many times Do calls try, the first time included
	firstPause = 20 * time.Millisecond // the longest pause before the second try; it doubles with each one
)

// Call is one operation on a key: every command sent for it, retries included, until Redis answers or the operation
// times out. A Call belongs to one goroutine. It is not reused, because a go-redis hook may keep a command's context,
// which is part of the Call. The caller sets the exported fields before Do. The methods other than Do are for the
// function that Do calls.
type Call struct {
	Pipeline *Pipeline
	Context  context.Context // the caller's
	Key      string          // decides to which node the commands go
	Start    time.Time       // when the operation began, which decides when it times out; zero means when Do is called
	Late     LateHandler     // gets a result that arrives after Do has returned; nil if nobody wants it

	// MayInline allows the caller's goroutine to send the first command. It cannot abandon that command, so MayInline
	// is set only for what a request waits for: store.Claim, store.Settle and store.ReleaseInline.
	MayInline bool

	waker    *waker  // nil until the caller has to wait
	timedOut bool    // the operation has timed out; only becomes true
	first    command // avoids an allocation: most operations send one command
}

// LateHandler gets the result of a command that its caller has abandoned. HandleLate is called in a goroutine of its
// own, at most once for each command.
type LateHandler interface{ HandleLate(Result) }

// Result is the result of a Call.
type Result struct {
	Reply
	Err     error // no try was answered, or the server answered with an error
	Unsure  bool  // some try may have been executed although its reply did not arrive
	Foreign bool  // Err is the server's: the key holds another type
}

// Do calls try until Redis answers, at most 4 times. It calls try again after an error that may pass (see
// [rediserr.IsTemporary]; not ErrNotReplicated), after a random pause of up to 20, 40 and 80 ms. Do returns when the
// operation times out or the Call's Context is done. (A command that goes inline is the exception: see Call.MayInline.)
func (c *Call) Do(try func() (Reply, error)) (r Result) {
	if c.Start.IsZero() {
		c.Start = time.Now()
	}
	defer c.disarm()
	for n := 1; ; n++ {
		var err error
		if r.Reply, err = try(); err == nil {
			if !c.Pipeline.answered.Load() {
				c.Pipeline.answered.Store(true)
			}
			return r
		}
		var abandoned *abandonedError
		if errors.As(err, &abandoned) {
			c.Pipeline.givenUp.Add(1)
			return Result{Unsure: r.Unsure || abandoned.sent, Err: abandoned.cause}
		}
		r.Unsure = r.Unsure || rediserr.MayHaveArrived(err)
		if n == maxTries || errors.Is(err, ErrNotReplicated) || !rediserr.IsTemporary(err) {
			r.Err, r.Foreign = err, rediserr.IsForeign(err)
			if !rediserr.IsReply(err) && !errors.Is(err, ErrNotReplicated) {
				c.Pipeline.givenUp.Add(1)
			}
			return r
		}
		if cause := c.pause(background.Jitter(firstPause << (n - 1))); cause != nil {
			r.Err = fmt.Errorf("%w: %w", cause, err)
			c.Pipeline.givenUp.Add(1)
			return r
		}
		c.Pipeline.retries.Add(1)
	}
}

// abandonedError is the error of a command whose caller stopped waiting for it. It does not wrap its cause: go-redis
// recognizes some errors of a server by their text, and the cause may be such an error of another call.
type abandonedError struct {
	cause error
	sent  bool // false: the command was not sent, and never will be
}

func (e *abandonedError) Error() string { return "the caller has abandoned the command" }

// cause returns why the caller stops waiting: the operation timed out, or its Context is done.
func (c *Call) cause() error {
	if c.timedOut {
		return background.TimeoutError(c.Pipeline.config.OpTimeout)
	}
	return context.Cause(c.Context)
}

// arm gives the Call a waker, whose timer fires when the operation times out.
func (c *Call) arm() {
	if c.waker == nil {
		c.waker = c.Pipeline.wakers.get(time.Until(c.Start.Add(c.Pipeline.config.OpTimeout)))
	}
}

// disarm returns the waker to the pool.
func (c *Call) disarm() {
	if c.waker != nil {
		c.Pipeline.wakers.put(c.waker)
	}
}

// pause waits for d. It returns an error if the operation ends first.
func (c *Call) pause(d time.Duration) error {
	if c.timedOut {
		return c.cause()
	}
	c.arm()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.Context.Done():
	case <-c.waker.timer.C:
		c.timedOut = true
	}
	return c.cause()
}
