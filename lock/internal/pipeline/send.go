package pipeline

// From here to the node's queue: which commands a Call sends, when it sends one again, and whether a command goes
// inline or through the queue. A goroutine that waits for a reply holds no mutex.

import (
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

// Send sends a command once and returns its reply.
func (c *Call) Send(args ...any) (Reply, error) {
	r, _, err := c.send(c.command(false, nil, args...))
	return r, err
}

// SendDurable is Send for a command whose write must reach replicas. With Config.Replicas a WAIT follows the command:
// acked is nil if enough replicas have what the command wrote, and [ErrNotReplicated] otherwise. Without it acked is
// nil.
func (c *Call) SendDurable(args ...any) (r Reply, acked, err error) {
	return c.send(c.command(c.Pipeline.config.Replicas > 0, nil, args...))
}

// Eval runs a script by its digest and returns its reply. A server that does not know the digest does nothing, and gets
// the source in a second command. args are the number of keys, the keys, and the script's arguments.
func (c *Call) Eval(s Script, args ...any) (Reply, error) {
	r, _, err := c.eval(false, s, args...)
	return r, err
}

// EvalDurable is Eval for a script whose write must reach replicas: see SendDurable.
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

// command returns the Call's next command, with the arguments prefix and args.
func (c *Call) command(durable bool, prefix []any, args ...any) *command {
	cmd := &c.first
	if cmd.call != nil {
		cmd = new(command)
	}
	cmd.call, cmd.durable = c, durable
	cmd.args = append(append(cmd.room[:0], prefix...), args...)
	return cmd
}

// send sends a command, and sends it once more when the reply was an error that go-redis has to see, or a redirection
// that go-redis has not followed. An error reply means that the first command did nothing.
func (c *Call) send(cmd *command) (r Reply, acked, err error) {
	r, acked, err = c.roundTrip(cmd)
	if err == nil {
		return r, acked, nil
	}
	again := command{call: c, args: cmd.args, durable: cmd.durable}
	var refused replyError
	if errors.As(err, &refused) && !refused.isExpected() {
		// go-redis has not parsed the reply. It has to see errors: it closes a connection to a server that is no longer
		// the master.
		again.typed = true
		return c.roundTrip(&again)
	}
	if addr, asking, ok := rediserr.Redirection(err); ok && cmd.durable { // go-redis follows the others
		again.addr, again.asking = addr, asking
		return c.roundTrip(&again)
	}
	return r, acked, err
}

// roundTrip sends a command and waits for its reply. It decides how the command is sent: inline, by this goroutine, if
// inlineDeadline allows it and fewer than maxInFlight batches are in flight; otherwise through the queue of the
// command's node, by a worker, and then this goroutine can stop waiting at any time.
func (c *Call) roundTrip(cmd *command) (r Reply, acked, err error) {
	if c.timedOut || c.Context.Err() != nil { // also after a reply that arrived at the same moment
		return Reply{}, nil, &abandonedError{cause: c.cause()}
	}
	q := c.Pipeline.router.queue(cmd)
	if d, returnBy, ok := c.inlineDeadline(cmd); ok && q.sendInline(cmd, d, returnBy) {
		return cmd.reply, cmd.acked, cmd.err
	}
	return c.sendQueued(q, cmd)
}

// maxInline is the longest argument of a command that is sent inline, in bytes. It fits into a connection's send
// buffer. A longer one could fill that, and closing a TLS connection with a full buffer can block past the deadline.
const maxInline = 4 << 10

// inlineDeadline returns the context under which the caller may send cmd inline, and the time by which it has to
// return. It reports false unless all of these hold: the Call allows it, the client honors deadlines and has been
// answered before, cmd is the Call's first command and has no long argument, and the context's Done, which is shared,
// does not outlast the caller. Reads and writes may take until returnBy (see command).
func (c *Call) inlineDeadline(cmd *command) (d *sharedDeadline, returnBy time.Time, ok bool) {
	p := c.Pipeline
	if !c.MayInline || !p.honorsDeadlines || !p.answered.Load() || cmd != &c.first || !cmd.fits(maxInline) {
		return nil, time.Time{}, false
	}
	returnBy = c.Start.Add(p.config.OpTimeout)
	if limit, ok := c.Context.Deadline(); ok && limit.Before(returnBy) {
		returnBy = limit
	}
	d = p.inlineDeadlines.forStart(c.Start)
	return d, returnBy, !returnBy.Before(d.end)
}

// sendQueued puts cmd into q, for a worker to send, and waits for its result. When the operation times out, or the
// caller's context is done, it abandons cmd.
func (c *Call) sendQueued(q *queue, cmd *command) (r Reply, acked, err error) {
	c.arm()
	cmd.done, c.waker.expectsDone = c.waker.done, true
	q.submit(cmd)
	select {
	case <-cmd.done:
		c.waker.expectsDone = false
		return cmd.reply, cmd.acked, cmd.err
	case <-c.Context.Done():
	case <-c.waker.timer.C:
		c.timedOut = true
	}
	sent, complete := q.abandon(cmd)
	if complete {
		<-cmd.done
		c.waker.expectsDone = false
		return cmd.reply, cmd.acked, cmd.err
	}
	return Reply{}, nil, &abandonedError{cause: c.cause(), sent: sent}
}
