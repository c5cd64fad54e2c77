package pipeline

// Which commands a Call sends, when it replaces one, and whether a command is sent inline or through the queue. A
// goroutine that waits for a reply holds no mutex.

import (
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

// Send sends a command once and returns its reply.
func (c *Call) Send(args ...any) (*Reply, error) {
	r, _, err := result(c.send(c.command(false, nil, args...)))
	return r, err
}

// SendDurable is Send for a command whose write must reach replicas. With Config.Replicas a WAIT follows the command,
// and waitErr is [ErrNotReplicated] if too few replicas have what the command wrote. Otherwise waitErr is nil.
func (c *Call) SendDurable(args ...any) (r *Reply, waitErr, err error) {
	return result(c.send(c.command(c.Pipeline.replicates, nil, args...)))
}

// Eval runs a script by its digest and returns its reply. If the server does not know the digest, Eval sends the source
// in a second command. args are the number of keys, the keys, and the script's arguments.
func (c *Call) Eval(s Script, args ...any) (*Reply, error) {
	r, _, err := c.eval(false, s, args...)
	return r, err
}

// EvalDurable is Eval for a script whose write must reach replicas: see SendDurable.
func (c *Call) EvalDurable(s Script, args ...any) (r *Reply, waitErr, err error) {
	return c.eval(c.Pipeline.replicates, s, args...)
}

func (c *Call) eval(durable bool, s Script, args ...any) (r *Reply, waitErr, err error) {
	cmd, err := c.send(c.command(durable, s.byDigest, args...))
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd, err = c.send(c.command(durable, s.bySource, args...))
	}
	return result(cmd, err)
}

// result returns the reply to cmd. After an error there is none, and a worker may still be using cmd.
func result(cmd *command, err error) (r *Reply, waitErr, _ error) {
	if err != nil {
		return nil, nil, err
	}
	return &cmd.reply, cmd.waitErr, nil
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

// send sends a command and, if the error calls for it, its replacement. It returns the one that was sent last.
func (c *Call) send(cmd *command) (*command, error) {
	err := c.roundTrip(cmd)
	if err == nil {
		return cmd, nil
	}
	if second := cmd.replacement(err); second != nil {
		return second, c.roundTrip(second)
	}
	return cmd, err
}

// replacement returns the command to send after c has returned err, and nil if the caller is to get err. Only an error
// reply calls for one, because Redis has then not executed c.
func (c *command) replacement(err error) *command {
	var reply replyError
	if errors.As(err, &reply) && !reply.isExpected() {
		// The command is sent again, so that go-redis parses the error: only then does it close the connection to a
		// server that is no longer the master.
		return &command{call: c.call, args: c.args, durable: c.durable, typed: true}
	}
	if addr, asking, ok := rediserr.Redirection(err); ok && c.durable { // go-redis follows the others
		return &command{call: c.call, args: c.args, durable: true, addr: addr, asking: asking}
	}
	return nil
}

// roundTrip sends a command and waits for its reply. It decides how the command is sent: inline, by this goroutine, or
// by a worker, through the queue of the command's node. A command is sent inline if
//
//  1. the Call allows it (MayInline), and this is its first command;
//  2. go-redis is sure to return by a deadline (Pipeline.endsInTime: on a *redis.Client with ContextTimeoutEnabled,
//     without WithReplicas), and Redis has answered before, because go-redis's first handshake ignores deadlines;
//  3. no argument is longer than maxInline;
//  4. the shared context under which it is sent (context.go) ends no later than the caller's deadline. It ends up to a
//     tenth of OpTimeout before the operation times out, so a command is queued if the deadline of the caller's context
//     is earlier still;
//  5. fewer than maxInFlight batches of the queue are in flight.
//
// When the operation times out, or the caller's context is done, roundTrip cancels a command that a worker sends.
func (c *Call) roundTrip(cmd *command) error {
	if c.timedOut || c.Context.Err() != nil { // the previous try may have got its error reply just as time ran out
		return &canceledError{cause: c.cause()}
	}
	q := c.Pipeline.router.queue(cmd)
	if c.sendInline(q, cmd) {
		return cmd.err
	}
	c.submit(q, cmd)
	select {
	case e := <-c.waker.events:
		if e == completed {
			c.waker.pending = false
			return cmd.err
		}
		c.timedOut = true
	case <-c.Context.Done():
	}
	return c.cancel(q, cmd)
}

// maxInline is the longest argument of a command that is sent inline, in bytes. It fits into a socket's send buffer. A
// longer one could fill the buffer, and closing a TLS connection with a full buffer can block past the deadline.
const maxInline = 4 << 10

// sendInline sends cmd in this goroutine if the conditions of roundTrip are met, and reports whether it did.
func (c *Call) sendInline(q *queue, cmd *command) bool {
	if !c.canInline(cmd) { // 1 to 3
		return false
	}
	deadline := c.deadline()
	shared := c.Pipeline.inlineContexts.forStart(c.Start)
	if shared.end.After(deadline) { // 4
		return false
	}
	return q.execInline(cmd, shared, deadline) // 5
}

// canInline reports whether cmd and its Call meet the first three conditions of roundTrip. A Call's later commands
// follow an error: a worker sends them, so that the caller can cancel them.
func (c *Call) canInline(cmd *command) bool {
	p := c.Pipeline
	return c.MayInline && cmd == &c.first && // 1
		p.endsInTime && p.answered.Load() && // 2
		cmd.fits(maxInline) // 3
}

// deadline returns when the operation times out or, if that is earlier, the deadline of the caller's context.
func (c *Call) deadline() time.Time {
	timeout := c.Start.Add(c.Pipeline.config.OpTimeout)
	if d, ok := c.Context.Deadline(); ok && d.Before(timeout) {
		return d
	}
	return timeout
}

// submit puts cmd into q, for a worker to send. The waker will get an event when cmd is complete.
func (c *Call) submit(q *queue, cmd *command) {
	c.arm()
	cmd.events, c.waker.pending = c.waker.events, true
	q.submit(cmd)
}

// cancel cancels a command in q. It returns the command's error if the command is complete nevertheless.
func (c *Call) cancel(q *queue, cmd *command) error {
	phase := q.cancel(cmd)
	if phase == phaseComplete {
		for <-c.waker.events != completed { // the timer may have fired as well
		}
		c.waker.pending = false
		return cmd.err
	}
	return &canceledError{cause: c.cause(), sent: phase == phaseSent}
}
