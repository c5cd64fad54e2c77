package redistest

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Direct is a client for tests in a testing/synctest bubble. All clients of go-redis share a pool of timers for waiting
// for a connection, and a timer made in one bubble must not be used outside of it. So it has more connections than a test
// has callers. It speaks RESP2, sends a command once, and sends nothing to set up a connection.
type Direct struct{ *redis.Client }

// NewDirect returns a client with a copy of the options o. The end of the test closes it.
func NewDirect(t testing.TB, o *redis.Options) *Direct {
	t.Helper()
	opt := *o
	opt.Protocol, opt.DisableIdentity = 2, true
	opt.PoolSize, opt.MaxRetries, opt.DialerRetries = 1<<12, -1, 1
	if opt.Addr == "" {
		opt.Addr = "127.0.0.1:6379" // not dialled; go-redis would resolve a name
	}
	client := redis.NewClient(&opt)
	client.AddHook(noHello{})
	closeAfter(t, "a direct client", client)
	return &Direct{client}
}

// noHello answers HELLO as a server does that does not know it.
type noHello struct{}

func (noHello) DialHook(next redis.DialHook) redis.DialHook { return next }

func (noHello) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "hello" {
			return next(ctx, cmd)
		}
		cmd.SetErr(unknownCommand{})
		return cmd.Err()
	}
}

func (noHello) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

type unknownCommand struct{}

func (unknownCommand) Error() string { return "ERR unknown command" }

// RedisError marks it as a redis.Error.
func (unknownCommand) RedisError() {}
