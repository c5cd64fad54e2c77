// The bare commands: the least that a protection has to send to Redis, on plain go-redis.

package main

import (
	"context"
	"errors"
	"io"
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

// openBare opens a site whose callers claim a key, run the service and settle the key. Keys are not hashed, requests not
// compared, tokens not random, and nothing is renewed.
var openBare = bareSite(bare)

func bare(ctx context.Context, client *redis.Client, s *service, key string) (int, []byte, error) {
	held, err := client.SetArgs(ctx, key, bareToken, redis.SetArgs{Mode: "NX", Get: true, TTL: bareLease}).Bytes()
	switch {
	case err == nil && string(held) == bareToken:
		return http.StatusConflict, nil, nil
	case !errors.Is(err, redis.Nil):
		return http.StatusCreated, held, err
	}
	s.runs.Add(1)
	n, err := bareSettle.EvalSha(ctx, client, []string{key}, bareToken, s.body, bareTTL.Milliseconds()).Int()
	if err == nil && n != 1 {
		err = errors.New("the claim is gone")
	}
	return http.StatusCreated, s.body, err
}

// openBareGet opens a site whose callers read a key, and if it holds nothing run the service and write it.
var openBareGet = bareSite(func(ctx context.Context, client *redis.Client, s *service, key string) (int, []byte, error) {
	held, err := client.Get(ctx, key).Bytes()
	if errors.Is(err, redis.Nil) {
		s.runs.Add(1)
		held, err = s.body, client.Set(ctx, key, s.body, bareTTL).Err()
	}
	return http.StatusCreated, held, err
})

func bareSite(visit func(ctx context.Context, client *redis.Client, s *service, key string) (int, []byte, error)) opener {
	return func(ctx context.Context, c conditions, s *service) (*site, error) {
		client := c.newClient()
		newVisitor := func() visitor {
			return func(key string) (int, []byte, error) { return visit(context.Background(), client, s, key) }
		}
		return &site{newVisitor: newVisitor, close: client.Close}, bareSettle.Load(ctx, client).Err()
	}
}

// bareHandler is the service's handler with the bare commands in it.
func bareHandler(client *redis.Client, s *service) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		status, body, err := bare(r.Context(), client, s, r.Header.Get(idempotencyKey))
		if err != nil {
			status, body = http.StatusInternalServerError, []byte(err.Error())
		}
		s.write(w, status, body)
	})
}
