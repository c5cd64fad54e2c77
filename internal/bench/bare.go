// The bare commands: the least that a protection has to send to Redis, on plain go-redis.

package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	bareToken = "8e03978e-40d5-43dd-bc93-6894a57f9324"
	bareLease = 4 * time.Minute // longer than a measurement
	bareTTL   = 24 * time.Hour  // of responses
)

// bareSettle puts a response in the place of the claim.
var bareSettle = redis.NewScript(`
	if redis.call('GET', KEYS[1]) == ARGV[1] then
		redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
		return 1
	end
	return 0`)

// sender returns what commands are sent through.
type sender func(*redis.Client) (redis.Cmdable, error)

func oneByOne(c *redis.Client) (redis.Cmdable, error) { return c, nil }

// autoPipelined returns go-redis's AutoPipeline with its defaults: what callers send at the same time goes in one write.
func autoPipelined(fullDuplex bool) sender {
	return func(c *redis.Client) (redis.Cmdable, error) {
		options := redis.DefaultBlockingAutoPipelineOptions()
		options.FullDuplex = fullDuplex
		return c.AutoPipelineWithOptions(options)
	}
}

// openBare opens a site whose callers claim a key, run the service and settle the key. Keys are not hashed, requests not
// compared, tokens not random, and nothing is renewed.
func openBare(by sender) opener {
	return bareSite(by, func(ctx context.Context, commands redis.Cmdable, s *service, key string) (int, []byte, error) {
		held, err := commands.SetArgs(ctx, key, bareToken, redis.SetArgs{Mode: "NX", Get: true, TTL: bareLease}).Bytes()
		switch {
		case err == nil && string(held) == bareToken:
			return http.StatusConflict, nil, nil
		case !errors.Is(err, redis.Nil):
			return http.StatusCreated, held, err
		}
		s.run()
		n, err := bareSettle.EvalSha(ctx, commands, []string{key}, bareToken, s.body, bareTTL.Milliseconds()).Int()
		if err == nil && n != 1 {
			err = errors.New("the claim is gone")
		}
		return http.StatusCreated, s.body, err
	})
}

// openBareGet opens a site whose callers read a key, and if it holds nothing run the service and write it.
func openBareGet(by sender) opener {
	return bareSite(by, func(ctx context.Context, commands redis.Cmdable, s *service, key string) (int, []byte, error) {
		held, err := commands.Get(ctx, key).Bytes()
		if errors.Is(err, redis.Nil) {
			s.run()
			held, err = s.body, commands.Set(ctx, key, s.body, bareTTL).Err()
		}
		return http.StatusCreated, held, err
	})
}

func bareSite(
	by sender, visit func(ctx context.Context, commands redis.Cmdable, s *service, key string) (int, []byte, error),
) opener {
	return func(ctx context.Context, c conditions, s *service) (*site, error) {
		client := c.newClient()
		commands, err := by(client)
		if err == nil {
			err = bareSettle.Load(ctx, commands).Err()
		}
		newVisitor := func() visitor {
			return func(key string) (int, []byte, error) { return visit(context.Background(), commands, s, key) }
		}
		return &site{newVisitor: newVisitor, close: client.Close}, err
	}
}
