package pipeline

// exec sends a batch by go-redis, and sets the result of each command. No mutex is held.

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

// cmder is a command of go-redis that returns its reply as a Reply. go-redis never retries it: the effect of a second
// command depends on the first, and Do would not know of a retry inside go-redis.
type cmder interface {
	redis.Cmder
	reply() (Reply, error)
}

// raw is a cmder whose reply ParseReply parses. go-redis makes an error of a null reply, which every claim of a free
// key gets: that costs 21 allocations with one caller.
type raw struct{ *redis.RawCmd }

func (raw) NoRetry() bool { return true }

// reply returns the reply or the error. A whole reply counts even if go-redis has set an error too, because the
// connection broke after the reply.
func (c raw) reply() (Reply, error) {
	b, err := c.Result()
	if err == nil && len(b) == 0 {
		return Reply{}, errNoReply
	}
	r, parseErr := ParseReply(b)
	if err != nil && errors.Is(parseErr, ErrProtocol) {
		return Reply{}, err
	}
	return r, parseErr
}

// typed is a cmder whose reply go-redis parses. A ClusterClient needs that to see that a slot has moved.
type typed struct{ *redis.Cmd }

func (typed) NoRetry() bool { return true }

func (c typed) reply() (Reply, error) {
	switch err := c.Err(); {
	case errors.Is(err, redis.Nil):
		return Reply{Absent: true}, nil
	case err != nil:
		return Reply{}, rediserr.InScript(err)
	}
	switch v := c.Val().(type) {
	case nil:
		return Reply{}, errNoReply
	case string:
		return Reply{Text: []byte(v)}, nil
	case int64:
		return Reply{Text: strconv.AppendInt(nil, v, 10)}, nil
	case []any:
		if len(v) == 2 {
			return pairOf(v[0], v[1]), nil
		}
	}
	return Reply{}, fmt.Errorf("%w: a %T", ErrProtocol, c.Val())
}

// pairOf returns the reply of claim.lua.
func pairOf(found, fenceOrLeft any) Reply {
	text, isText := found.(string)
	fence, _ := fenceOrLeft.(string)
	left, _ := fenceOrLeft.(int64)
	return Reply{Pair: true, Text: []byte(text), Absent: !isText, Fence: fence, Left: left}
}

// exec sends the commands of a batch and sets their results. Workers call it. A command that is sent alone carries the values of its caller's context, and a larger batch those of the base context.
func (p *Pipeline) exec(ctx context.Context, batch []*command) {
	p.router.load(ctx, batch[0].call.Key)
	if len(batch) == 1 {
		ctx = batch[0]
	}
	switch {
	case batch[0].durable:
		p.execDurable(ctx, batch)
	case len(batch) == 1:
		cmd := p.newCmder(batch[0])
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
		cmders[i] = p.newCmder(c)
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

// newCmder returns c as a new command of go-redis.
func (p *Pipeline) newCmder(c *command) cmder {
	if c.typed || p.router.cluster != nil {
		return typed{redis.NewCmd(c, c.args...)}
	}
	return raw{redis.NewRawCmd(c, c.args...)}
}

// setResult sets the result of c from the command of go-redis. err is the error of the whole batch: go-redis does not
// always set the error of a command that it has not sent.
func (c *command) setResult(cmd cmder, err error) {
	c.reply, c.err = cmd.reply()
	if errors.Is(c.err, errNoReply) && err != nil {
		c.err = err
	}
}
