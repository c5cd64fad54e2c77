package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

const (
	maxTries   = 4                     // how many times Do calls try, the first time included
	firstPause = 20 * time.Millisecond // the longest pause before the second try; it doubles with each one
)

// Call is one operation on a key: every command sent for it, retries included, until Redis answers or the operation
// times out. The caller sets the exported fields, and passes Do a function that calls SendDurable or Eval. A Call belongs to
// one goroutine, which may call Do again for a later part of the same operation. It is not reused for another operation,
// because a go-redis hook may keep a command's context, which is part of the Call.
type Call struct {
	Pipeline *Pipeline
	Context  context.Context // the caller's
	Key      string          // decides to which node the commands go
	Start    time.Time       // when the operation began: it times out OpTimeout later; Do sets it if it is zero
	Late     LateHandler     // gets the result of a canceled command; may be nil

	waker    *waker  // nil until the caller has to wait
	alone    bool    // the next command is sent alone: see Do
	timedOut bool    // this Call has noticed that the operation has timed out; never cleared
	first    command // avoids an allocation: most operations send one command
}

// LateHandler gets the result of a command that its caller has canceled. HandleLate is called in a new goroutine, at
// most once for each command.
type LateHandler interface{ HandleLate(Result) }

// Result is the result of a Call.
type Result struct {
	*Reply        // valid only if Err is nil
	Err     error // nil on success; otherwise the last error, and before it the reason if the caller stopped waiting
	Unsure  bool  // Redis may have executed a try whose reply did not arrive
	Foreign bool  // Err is Redis's: the key holds another type
}

// Do calls try until Redis answers, at most maxTries times. After an error that may pass (see [rediserr.IsTemporary];
// not ErrNotReplicated) it calls try again, after a random pause of up to 20, 40 and 80 ms. After READONLY the command goes
// alone: go-redis closes the connection to a server that is no longer the master only if the first reply of a batch is that.
// Do returns at the latest when the operation times out or the Call's Context is done.
func (c *Call) Do(try func() (*Reply, error)) (r Result) {
	if c.Start.IsZero() {
		c.Start = time.Now()
	}
	defer c.disarm()
	var last error // of the try before
	for n := 1; ; n++ {
		var err error
		if r.Reply, err = try(); err == nil {
			return r
		}
		var canceled *canceledError
		if errors.As(err, &canceled) {
			c.Pipeline.givenUp.Add(1)
			return Result{Unsure: r.Unsure || canceled.sent, Err: withLast(canceled.cause, last)}
		}
		r.Unsure = r.Unsure || !isAnswer(err) && rediserr.MayHaveArrived(err)
		if n == maxTries || isFinal(err) {
			if !isAnswer(err) {
				c.Pipeline.givenUp.Add(1)
			}
			return Result{Unsure: r.Unsure, Err: err, Foreign: rediserr.IsForeign(err)}
		}
		if cause := c.pause(background.Jitter(firstPause << (n - 1))); cause != nil {
			c.Pipeline.givenUp.Add(1)
			return Result{Unsure: r.Unsure, Err: withLast(cause, err)}
		}
		c.Pipeline.retries.Add(1)
		last, c.alone = err, redis.IsReadOnlyError(err)
	}
}

// withLast returns the error of a caller that has stopped waiting, with the last error of a try, which may be nil.
func withLast(cause, last error) error {
	if last == nil {
		return cause
	}
	return fmt.Errorf("%w: %w", cause, last)
}

// isFinal reports whether err rules out another try.
func isFinal(err error) bool { return errors.Is(err, ErrNotReplicated) || !rediserr.IsTemporary(err) }

// isAnswer reports whether err means that Redis has answered. It does if err is ErrNotReplicated, which is about the
// reply to a WAIT.
func isAnswer(err error) bool { return errors.Is(err, ErrNotReplicated) || rediserr.IsReply(err) }

// canceledError is the error of a command whose caller stopped waiting for it. It must not unwrap to its cause: a
// context's cause may be an error reply to some other command, and rediserr would take it for the reply to this one.
type canceledError struct {
	cause error
	sent  bool // false: the command was not sent, and never will be
}

func (e *canceledError) Error() string { return "the caller has canceled the command" }

// cause returns why the caller stops waiting: the operation has timed out, or its Context is done.
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
		c.waker = nil
	}
}

// pause waits for d. It returns the cause if the operation times out first or its Context is done.
func (c *Call) pause(d time.Duration) error {
	left := time.Until(c.Start.Add(c.Pipeline.config.OpTimeout))
	if err := background.Pause(c.Context, min(d, left)); err != nil {
		return err
	}
	if d < left {
		return nil
	}
	c.timedOut = true
	return c.cause()
}

// waker wakes the goroutine of a waiting Call when its command is complete or the operation times out. Wakers are
// reused, and one channel has both events: a new timer and channels for each Call cost 10 % of the CPU of a claim and
// its settlement with 64 callers.
type waker struct {
	events    chan event  // has room for both, so a sender never waits
	timer     *time.Timer // sends timedOut
	expecting bool        // events will still receive completed for a command of this Call
}

type event uint8

const (
	completed event = iota
	timedOut
)

// wakerPool keeps the wakers that no Call uses. Its methods may be called concurrently.
type wakerPool struct{ pool sync.Pool }

// get returns a waker whose timer fires after d.
func (p *wakerPool) get(d time.Duration) *waker {
	if w, ok := p.pool.Get().(*waker); ok {
		w.timer.Reset(d)
		return w
	}
	w := &waker{events: make(chan event, 2)}
	w.timer = time.AfterFunc(d, func() { w.events <- timedOut })
	return w
}

// put lets another Call use w, unless the timer of w has fired or its channel will still receive an event for this
// Call.
func (p *wakerPool) put(w *waker) {
	if w.timer.Stop() && !w.expecting {
		p.pool.Put(w)
	}
}
