package pipeline

// How a Call sends a command through the queue, and again after a redirection. A goroutine that waits for a reply holds no
// mutex.

import (
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
	cmd.call, cmd.durable, cmd.alone = c, durable, c.alone
	cmd.args = append(append(cmd.room[:0], prefix...), args...)
	return cmd
}

// send sends a command, and again to the node that a redirection names: go-redis follows only those of commands that are not
// durable. After an error there is no reply, and a worker may still be using the command.
func (c *Call) send(cmd *command) (*Reply, error) {
	err := c.roundTrip(cmd)
	if addr, ok := rediserr.Redirection(err); ok && cmd.durable {
		cmd = &command{call: c, args: cmd.args, durable: true, alone: true, addr: addr}
		err = c.roundTrip(cmd)
	}
	if err != nil {
		return nil, err
	}
	return &cmd.reply, nil
}

// roundTrip submits a command to the queue of its node, and waits for its result. When the operation times out, or the
// caller's context is done, roundTrip cancels the command.
func (c *Call) roundTrip(cmd *command) error {
	if c.timedOut || c.Context.Err() != nil { // the previous try may have received its error reply just as time ran out
		return &canceledError{cause: c.cause()}
	}
	q := c.Pipeline.router.queue(cmd)
	c.arm()
	cmd.events, c.waker.expecting = c.waker.events, true
	q.submit(cmd)
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
