package pipeline

// exec sends a batch by go-redis, and sets the result of each command. No mutex is held.

import (
	"cmp"
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

// cmder is a command of go-redis, which parses its reply: so it closes the connection to a server that is no longer the
// master, and sees that a slot has moved. It never retries the command: the effect of a second one depends on the first, and
// Do would not know of a retry inside go-redis.
type cmder struct{ *redis.Cmd }

func (cmder) NoRetry() bool { return true }

// newCmder returns c as a new command of go-redis.
func newCmder(c *command) cmder { return cmder{redis.NewCmd(c, c.args...)} }

// exec sends the commands of a batch and sets their results. Workers call it. A command that is sent alone carries the values
// of its caller's context, and a larger batch those of the base context.
func (p *Pipeline) exec(ctx context.Context, batch []*command) {
	p.router.load(ctx, batch[0].call.Key)
	if len(batch) == 1 {
		ctx = batch[0]
	}
	switch {
	case batch[0].durable:
		p.execDurable(ctx, batch)
	case len(batch) == 1:
		cmd := newCmder(batch[0])
		err := p.client.Process(ctx, cmd)
		batch[0].setResult(cmd, err)
	default:
		p.execPipelined(ctx, p.client.Pipeline(), batch)
	}
}

// execPipelined adds a batch and then the commands last to pipe, and sends the pipe.
func (p *Pipeline) execPipelined(ctx context.Context, pipe redis.Pipeliner, batch []*command, last ...redis.Cmder) {
	cmders := make([]cmder, len(batch))
	for i, c := range batch {
		cmders[i] = newCmder(c)
		_ = pipe.Process(ctx, cmders[i])
	}
	for _, cmd := range last {
		_ = pipe.Process(ctx, cmd)
	}
	_, err := pipe.Exec(ctx)
	for i, c := range batch {
		c.setResult(cmders[i], err)
	}
}

// setResult sets the result of c from the command of go-redis. A whole reply counts even if go-redis has set an error too,
// because the connection broke after the reply; a reply that is cut leaves nil, "" or 0. err is the error of the whole batch:
// go-redis does not always set the error of a command that it has not sent.
func (c *command) setResult(cmd cmder, err error) {
	v, cmdErr := cmd.Val(), cmd.Err()
	switch {
	case errors.Is(cmdErr, redis.Nil):
		c.reply = Reply{Absent: true}
	case v != nil && (cmdErr == nil || v != "" && v != int64(0)):
		c.reply, c.err = newReply(v)
	default:
		c.err = cmp.Or(rediserr.InScript(cmdErr), err, errNoReply)
	}
}
