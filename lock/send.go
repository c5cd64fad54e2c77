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
	text   string // what the key holds, or the head that a script has found there
	pair   bool   // it is the reply of claim.lua, with one of the next two
	fence  string // the number of a claim that was granted
	left   int64  // how long the key will last, in milliseconds, negative if for ever
}

// once is a command that go-redis sends a single time: what comes of a second one depends on the first, and a retry
// inside go-redis would not be seen.
type once struct{ *redis.Cmd }

func newOnce(ctx context.Context, args ...any) once { return once{redis.NewCmd(ctx, args...)} }

func (once) NoRetry() bool { return true }

// reply returns what came of a command that was sent.
func (c once) reply() (reply, error) {
	switch err := c.Err(); {
	case errors.Is(err, redis.Nil):
		return reply{absent: true}, nil
	case err != nil:
		return reply{}, err
	}
	switch v := c.Val().(type) {
	case string:
		return reply{text: v}, nil
	case []any:
		if len(v) == 2 {
			return pair(v[0], v[1]), nil
		}
	}
	return reply{}, fmt.Errorf("a reply of type %T", c.Val())
}

func pair(held, more any) reply {
	text, found := held.(string)
	fence, _ := more.(string)
	left, _ := more.(int64)
	return reply{pair: true, text: text, absent: !found, fence: fence, left: left}
}

// send sends one command once.
func (l *Locker) send(ctx context.Context, args ...any) (reply, error) {
	cmd := newOnce(ctx, args...)
	_ = l.client.Process(ctx, cmd) // the command has the error too
	return cmd.reply()
}
