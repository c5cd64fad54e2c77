package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

// maxTries bounds how often an operation sends its command.
const maxTries = 4

// Call is one operation on a key: every command sent for it, retries included, until Redis answers or the operation times
// out. It is not used again: hooks of go-redis may keep a command's context, and that is a part of it. The exported
// fields are set before Do, and its other methods are for the function that Do calls.
type Call struct {
	Pipeline *Pipeline
	Context  context.Context // the caller's
	Key      string          // decides to which node the commands go
	Start    time.Time       // counts against the time for one operation; zero for when Do is called
	Late     Late            // gets a result that comes after Do has returned; nil if nobody wants it

	// MayInline says that the caller may send the first command itself. Nobody could abandon it then: it is for what every
	// request asks, not for renewals.
	MayInline bool

	waiter  *waiter // nil until the caller has to wait
	expired bool    // the operation has timed out
	first   command // room for what most operations send
}

// Late gets the result of a command that its caller has abandoned.
type Late interface{ Late(Result) }

// Result is the result of a Call.
type Result struct {
	Reply
	Err     error // no try was answered, or the answer is an error
	Unsure  bool  // some try may have been executed although its reply did not arrive
	Foreign bool  // Err is the server's, and says that the key holds another type
}

// Do calls try until Redis has answered, a few times at most. It returns within the time for one operation, or when the
// Call's context is done.
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
			return Result{Unsure: r.Unsure || abandoned.sent, Err: abandoned.cause}
		}
		r.Unsure = r.Unsure || rediserr.MayHaveArrived(err)
		if n == maxTries || errors.Is(err, ErrNotReplicated) || !rediserr.IsTemporary(err) {
			r.Err, r.Foreign = err, rediserr.IsForeign(err)
			return r
		}
		if cause := c.pause(background.Jitter(10 * time.Millisecond << n)); cause != nil {
			r.Err = fmt.Errorf("%w: %w", cause, err)
			return r
		}
	}
}

// abandonedError says that the caller did not wait for the command that it sent, or not even for it to be sent. It does
// not show its cause: go-redis tells some of a server's errors by their text, and a cause may be such an error of another
// call.
type abandonedError struct {
	cause error
	sent  bool
}

func (e *abandonedError) Error() string { return "the caller has abandoned the command" }

// cause returns why the caller waits no longer.
func (c *Call) cause() error {
	if c.expired {
		return background.TimeoutError(c.Pipeline.config.OpTimeout)
	}
	return context.Cause(c.Context)
}

// arm gives the Call a waiter for the time that is left.
func (c *Call) arm() {
	if c.waiter == nil {
		c.waiter = c.Pipeline.waiters.take(time.Until(c.Start.Add(c.Pipeline.config.OpTimeout)))
	}
}

// disarm gives the waiter back.
func (c *Call) disarm() {
	if c.waiter != nil {
		c.Pipeline.waiters.put(c.waiter)
	}
}

// pause waits for d, and returns an error if the operation ends before.
func (c *Call) pause(d time.Duration) error {
	if c.expired {
		return c.cause()
	}
	c.arm()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.Context.Done():
	case <-c.waiter.timer.C:
		c.expired = true
	}
	return c.cause()
}
