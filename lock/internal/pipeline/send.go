package pipeline

import (
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

// Send sends a command once, and returns its reply.
func (c *Call) Send(args ...any) (Reply, error) {
	r, _, err := c.send(c.command(false, nil, args...))
	return r, err
}

// SendDurable is Send of a command that writes what replicas must have. If there are to be any, acked is nil if what the
// command wrote, if anything, has reached enough of them.
func (c *Call) SendDurable(args ...any) (r Reply, acked, err error) {
	return c.send(c.command(c.Pipeline.config.Replicas > 0, nil, args...))
}

// Eval runs a script by its digest, and with its source where the server does not know it (any more). A server that does
// not know it has done nothing yet. The arguments are the number of keys, the keys, and the script's arguments.
func (c *Call) Eval(s Script, args ...any) (Reply, error) {
	r, _, err := c.eval(false, s, args...)
	return r, err
}

// EvalDurable is Eval of a script that writes what replicas must have, see SendDurable.
func (c *Call) EvalDurable(s Script, args ...any) (r Reply, acked, err error) {
	return c.eval(c.Pipeline.config.Replicas > 0, s, args...)
}

func (c *Call) eval(durable bool, s Script, args ...any) (r Reply, acked, err error) {
	r, acked, err = c.send(c.command(durable, s.byDigest, args...))
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		return c.send(c.command(durable, s.bySource, args...))
	}
	return r, acked, err
}

// command returns the Call's next command. Its arguments are those given, one list behind the other.
func (c *Call) command(durable bool, prefix []any, args ...any) *command {
	cmd := &c.first
	if cmd.call != nil {
		cmd = new(command)
	}
	cmd.call, cmd.durable = c, durable
	cmd.args = append(append(cmd.room[:0], prefix...), args...)
	return cmd
}

// send sends a command, and a second time where the first one says how.
func (c *Call) send(cmd *command) (r Reply, acked, err error) {
	r, acked, err = c.roundTrip(cmd)
	if err == nil {
		return r, acked, nil
	}
	again := command{call: c, args: cmd.args, durable: cmd.durable}
	var refused replyError
	if errors.As(err, &refused) && !refused.isExpected() {
		// go-redis has not read the reply. It has to see an error: it gives up a connection to a server that is no master
		// any more, and knows its kinds. Where the answer is an error nothing has happened.
		again.typed = true
		return c.roundTrip(&again)
	}
	if addr, asking, ok := rediserr.Redirection(err); ok && cmd.durable { // any other go-redis has followed by itself
		again.addr, again.asking = addr, asking
		return c.roundTrip(&again)
	}
	return r, acked, err
}

// roundTrip sends a command, and waits for what comes of it. Here it is decided how it travels: inline, in this goroutine,
// if the client will be back in time and few batches are in flight; else through the queue of its node, whose workers
// this goroutine can abandon.
func (c *Call) roundTrip(cmd *command) (r Reply, acked, err error) {
	if c.expired || c.Context.Err() != nil { // even if a reply came at the same moment: no more is sent
		return Reply{}, nil, &abandonedError{cause: c.cause()}
	}
	q := c.Pipeline.router.queue(cmd)
	if d, until, ok := c.inlineDeadline(cmd); ok && q.sendInline(cmd, d, until) {
		return cmd.reply, cmd.acked, cmd.err
	}
	return c.sendQueued(q, cmd)
}

// maxInline is how long an argument may be of a command that is sent inline. It fits into any connection's buffer: on a
// full one go-redis closes a TLS connection with a time limit of its own.
const maxInline = 4 << 10

// inlineDeadline returns the context under which the caller may send cmd itself, and when it has to return. It is not ok if
// the caller must not, or would not be back in time.
func (c *Call) inlineDeadline(cmd *command) (d *deadline, until time.Time, ok bool) {
	p := c.Pipeline
	if !c.MayInline || !p.honorsDeadlines || !p.answered.Load() || cmd != &c.first || !cmd.fits(maxInline) {
		return nil, time.Time{}, false
	}
	until = c.Start.Add(p.config.OpTimeout)
	if limit, ok := c.Context.Deadline(); ok && limit.Before(until) {
		until = limit
	}
	d = p.inlineDeadlines.at(c.Start)
	return d, until, !until.Before(d.at)
}

// sendQueued lets a worker send cmd, and waits for that until the operation ends.
func (c *Call) sendQueued(q *queue, cmd *command) (r Reply, acked, err error) {
	c.arm()
	cmd.done, c.waiter.pending = c.waiter.done, true
	q.submit(cmd)
	select {
	case <-cmd.done:
		c.waiter.pending = false
		return cmd.reply, cmd.acked, cmd.err
	case <-c.Context.Done():
	case <-c.waiter.timer.C:
		c.expired = true
	}
	sent, complete := q.abandon(cmd)
	if complete {
		<-cmd.done
		c.waiter.pending = false
		return cmd.reply, cmd.acked, cmd.err
	}
	return Reply{}, nil, &abandonedError{cause: c.cause(), sent: sent}
}
