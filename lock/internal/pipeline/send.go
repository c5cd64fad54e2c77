package pipeline

// How a Call sends a command: inline or through the queue, and again as a replacement after some error replies. A
// goroutine that waits for a reply holds no mutex.

import (
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

// Send sends a command once, and returns its reply.
func (c *Call) Send(args ...any) (*Reply, error) { return c.send(c.command(false, nil, args...)) }

// SendDurable is Send for a command whose write must reach replicas. With Config.Replicas a WAIT follows the command: see
// Reply.WaitErr.
func (c *Call) SendDurable(args ...any) (*Reply, error) {
	return c.send(c.command(c.Pipeline.config.Replicas > 0, nil, args...))
}

// Script is a Lua script, which Call.Eval runs.
type Script struct{ byDigest, bySource []any } // the first arguments: EVALSHA and the digest, EVAL and the source

// NewScript returns the Script with that source.
func NewScript(source string) Script {
	return Script{byDigest: []any{"evalsha", redis.NewScript(source).Hash()}, bySource: []any{"eval", source}}
}

// Eval runs a script by its digest and returns its reply. If the server does not know the digest, Eval sends the source
// in a second command. args are the number of keys, the keys, and the script's arguments.
func (c *Call) Eval(s Script, args ...any) (*Reply, error) {
	return c.eval(false, s, args...)
}

// EvalDurable is Eval for a script whose write must reach replicas: see SendDurable.
func (c *Call) EvalDurable(s Script, args ...any) (*Reply, error) {
	return c.eval(c.Pipeline.config.Replicas > 0, s, args...)
}

func (c *Call) eval(durable bool, s Script, args ...any) (*Reply, error) {
	r, err := c.send(c.command(durable, s.byDigest, args...))
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		return c.send(c.command(durable, s.bySource, args...))
	}
	return r, err
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

// send sends a command and, if its error has one, its replacement. It returns the reply to the command that was sent
// last. After an error there is no reply, and a worker may still be using the command.
func (c *Call) send(cmd *command) (*Reply, error) {
	err := c.roundTrip(cmd)
	if err != nil {
		if cmd = cmd.replacement(err); cmd == nil {
			return nil, err
		}
		if err = c.roundTrip(cmd); err != nil {
			return nil, err
		}
	}
	return &cmd.reply, nil
}

// replacement returns the command to send after c has failed with err, or nil if the caller gets err. Only an error
// reply has a replacement, because Redis has then not executed c.
func (c *command) replacement(err error) *command {
	var reply rediserr.Reply
	if errors.As(err, &reply) && !isExpected(reply) {
		// The command is sent again, so that go-redis parses the error: only then does it close the connection to a
		// server that is no longer the master.
		return &command{call: c.call, args: c.args, durable: c.durable, typed: true}
	}
	if addr, ok := rediserr.Redirection(err); ok && c.durable { // go-redis follows the redirections of other commands
		return &command{call: c.call, args: c.args, durable: true, addr: addr}
	}
	return nil
}

// roundTrip sends a command and waits for its reply. It decides how the command is sent: inline, by this goroutine, or
// by a worker, through the queue of the command's node. A command is sent inline if
//
//  1. the Call allows it (MayInline), and this is its first command;
//  2. go-redis returns by a deadline (Pipeline.endsInTime: a *redis.Client with ContextTimeoutEnabled that honorsDeadlines
//     accepts, without WithReplicas). Redis must have answered before, as go-redis's first handshake ignores deadlines;
//  3. no argument is longer than maxInline;
//  4. the shared context under which it is sent (context.go) ends no later than the caller's deadline. It ends at most
//     OpTimeout/10 before the operation times out. A command whose caller has an earlier deadline is queued;
//  5. fewer than maxInFlight batches of the queue are in flight.
//
// When the operation times out, or the caller's context is done, roundTrip cancels a command that a worker sends.
func (c *Call) roundTrip(cmd *command) error {
	if c.timedOut || c.Context.Err() != nil { // the previous try may have received its error reply just as time ran out
		return &canceledError{cause: c.cause()}
	}
	q := c.Pipeline.router.queue(cmd)
	if c.sendInline(q, cmd) {
		return cmd.err
	}
	c.arm()
	cmd.events, c.waker.expecting = c.waker.events, true
	q.submit(cmd) // for a worker to send
	select {
	case e := <-c.waker.events:
		if e == completed {
			c.waker.expecting = false
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

// sendInline sends cmd in this goroutine if the conditions of roundTrip are met, and reports whether it did. Later
// commands of a Call, most of which follow an error, are sent by a worker, so that the caller can cancel them.
func (c *Call) sendInline(q *queue, cmd *command) bool {
	p := c.Pipeline
	isLong := func(arg any) bool { return sizeOf(arg) > maxInline }
	if !c.MayInline || cmd != &c.first || // 1
		!p.endsInTime || !p.answered.Load() || // 2
		slices.ContainsFunc(cmd.args, isLong) { // 3
		return false
	}
	deadline := c.Start.Add(p.config.OpTimeout)
	if d, ok := c.Context.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	shared := p.inlineContexts.forStart(c.Start)
	if end, _ := shared.Deadline(); end.After(deadline) { // 4
		return false
	}
	return q.execInline(cmd, shared, deadline) // 5
}

// cancel cancels a command in q. If the command is already complete, cancel returns the command's error.
func (c *Call) cancel(q *queue, cmd *command) error {
	stage := q.cancel(cmd)
	if stage == stageComplete {
		for <-c.waker.events != completed { // the timer may have fired as well
		}
		c.waker.expecting = false
		return cmd.err
	}
	return &canceledError{cause: c.cause(), sent: stage == stageSent}
}
