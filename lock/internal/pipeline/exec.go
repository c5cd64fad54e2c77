package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

// request is a command as go-redis has it. go-redis sends none of them more than once: what a second time does depends on
// the first, and a retry inside go-redis would not be seen.
type request interface {
	redis.Cmder
	reply() (Reply, error)
}

// raw leaves the reply to us. A reply of nothing, which every fresh claim gets, is an error to go-redis, and takes its way
// through all that go-redis does about errors.
type raw struct{ *redis.RawCmd }

func (raw) NoRetry() bool { return true }

// reply returns the reply or the error. If the connection broke behind a reply that had come whole, go-redis has put the
// error here too; the reply counts.
func (c raw) reply() (Reply, error) {
	b, err := c.Result()
	if err == nil && len(b) == 0 {
		return Reply{}, errNoReply
	}
	r, malformed := ParseReply(b)
	if err != nil && errors.Is(malformed, ErrProtocol) {
		return Reply{}, err
	}
	return r, malformed
}

// typed lets go-redis read the reply. A ClusterClient needs that to see that a slot has moved.
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
	case []any:
		if len(v) == 2 {
			return pairOf(v[0], v[1]), nil
		}
	}
	return Reply{}, fmt.Errorf("%w: a %T", ErrProtocol, c.Val())
}

func pairOf(held, more any) Reply {
	text, found := held.(string)
	fence, _ := more.(string)
	left, _ := more.(int64)
	return Reply{Pair: true, Text: []byte(text), Absent: !found, Fence: fence, Left: left}
}

// exec sends a batch, and fills in the results.
func (p *Pipeline) exec(ctx context.Context, batch []*command) {
	p.router.load(ctx, batch[0].call.Key)
	switch {
	case batch[0].durable:
		p.execDurable(ctx, batch)
	case len(batch) == 1:
		req := p.request(batch[0])
		err := p.client.Process(batch[0], req)
		batch[0].take(req, err)
	default:
		p.execPipelined(ctx, p.client.Pipeline(), batch)
	}
}

// execPipelined sends a batch, and what comes last, at the end of pipe.
func (p *Pipeline) execPipelined(ctx context.Context, pipe redis.Pipeliner, batch []*command, last ...redis.Cmder) {
	requests := make([]request, len(batch))
	for i, c := range batch {
		requests[i] = p.request(c)
		_ = pipe.Process(ctx, requests[i])
	}
	for _, req := range last {
		_ = pipe.Process(ctx, req)
	}
	_, err := pipe.Exec(ctx)
	for i, c := range batch {
		c.take(requests[i], err)
	}
}

func (p *Pipeline) request(c *command) request {
	if c.typed || p.router.cluster != nil {
		return typed{redis.NewCmd(c, c.args...)}
	}
	return raw{redis.NewRawCmd(c, c.args...)}
}

// take fills in the result of a command that was sent, or was not because of err, which go-redis does not always put on
// it.
func (c *command) take(req request, err error) {
	c.reply, c.err = req.reply()
	if errors.Is(c.err, errNoReply) && err != nil {
		c.err = err
	}
}
