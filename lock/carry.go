package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// reply is what Redis says to a command: that there is nothing, a text, or the pair that claim.lua returns.
type reply struct {
	absent bool   // nothing: there is no key, or was none
	text   []byte // what the key holds, or the head that a script has found there
	pair   bool   // it is the reply of claim.lua, with one of the next two
	fence  string // the number of a claim that was granted
	left   int64  // how long the key will last, in milliseconds, negative if for ever
}

// sent is a command as go-redis has it. None is sent more than once by go-redis: what comes of a second time depends on
// the first, and a retry inside go-redis would not be seen.
type sent interface {
	redis.Cmder
	reply() (reply, error)
}

// raw leaves the reply to us. A reply of nothing, which is what every fresh claim gets, is an error to go-redis, and
// takes its way through all that go-redis does about errors.
type raw struct{ *redis.RawCmd }

func (raw) NoRetry() bool { return true }

// reply returns what came of the command. If the connection broke behind a reply that had come whole, go-redis has put
// the error here too; the reply counts.
func (c raw) reply() (reply, error) {
	b, err := c.Result()
	if err == nil && len(b) == 0 {
		return reply{}, errNoReply
	}
	r, malformed := parseReply(b)
	if err != nil && errors.Is(malformed, errProtocol) {
		return reply{}, err
	}
	return r, malformed
}

// typed lets go-redis read the reply. A ClusterClient needs that to see that a slot has moved.
type typed struct{ *redis.Cmd }

func (typed) NoRetry() bool { return true }

func (c typed) reply() (reply, error) {
	switch err := c.Err(); {
	case errors.Is(err, redis.Nil):
		return reply{absent: true}, nil
	case err != nil:
		return reply{}, err
	}
	switch v := c.Val().(type) {
	case nil:
		return reply{}, errNoReply
	case string:
		return reply{text: []byte(v)}, nil
	case []any:
		if len(v) == 2 {
			return pair(v[0], v[1]), nil
		}
	}
	return reply{}, fmt.Errorf("%w: a %T", errProtocol, c.Val())
}

func pair(held, more any) reply {
	text, found := held.(string)
	fence, _ := more.(string)
	left, _ := more.(int64)
	return reply{pair: true, text: []byte(text), absent: !found, fence: fence, left: left}
}

// carry sends a batch, and fills in what came of it.
func (l *Locker) carry(ctx context.Context, batch []*command) {
	l.routes.load(ctx, batch[0].trip.key.text)
	switch {
	case batch[0].durable:
		l.carryReplicated(ctx, batch)
	case len(batch) == 1:
		cmd := l.newSent(batch[0])
		err := l.client.Process(batch[0], cmd)
		batch[0].take(cmd, err)
	default:
		l.pipe(ctx, l.client.Pipeline(), batch)
	}
}

// pipe sends a batch, and what comes last, at the end of pipe.
func (l *Locker) pipe(ctx context.Context, pipe redis.Pipeliner, batch []*command, last ...redis.Cmder) {
	cmds := make([]sent, len(batch))
	for i, c := range batch {
		cmds[i] = l.newSent(c)
		_ = pipe.Process(ctx, cmds[i])
	}
	for _, cmd := range last {
		_ = pipe.Process(ctx, cmd)
	}
	_, err := pipe.Exec(ctx)
	for i, c := range batch {
		c.take(cmds[i], err)
	}
}

func (l *Locker) newSent(c *command) sent {
	if c.typed || l.routes.cluster != nil {
		return typed{redis.NewCmd(c, c.args...)}
	}
	return raw{redis.NewRawCmd(c, c.args...)}
}

// take fills in what came of a command that was sent, or was not because of err, which is not always put on it.
func (c *command) take(cmd sent, err error) {
	c.reply, c.err = cmd.reply()
	if errors.Is(c.err, errNoReply) && err != nil {
		c.err = err
	}
}
