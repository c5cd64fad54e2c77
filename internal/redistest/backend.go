package redistest

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Backend is a Redis server of one test, real ([*Server]) or a miniredis ([Mini]).
type Backend interface {
	// Addr is the host:port it listens on.
	Addr() string

	// Client returns a client of this server, as [NewClient] does.
	Client(t testing.TB, opts ...func(*redis.Options)) *redis.Client

	// Elapse makes d pass for the keys that have a TTL, and for nothing else: it shortens each TTL by d, and removes
	// the keys with a TTL of d or less. No clock moves. miniredis expires keys only by Elapse. On a real server, time
	// passes as well, d counts in whole milliseconds, and a removed key publishes "del" and not "expired".
	Elapse(t testing.TB, d time.Duration)

	// Keys returns every key of database 0, sorted.
	Keys(t testing.TB) []string

	// Raw returns the string under key. ok is false if there is none. A value of another type fails the test.
	Raw(t testing.TB, key string) (value string, ok bool)

	// FlushAll removes every key of every database.
	FlushAll(t testing.TB)
}

// backendsEnv set to "both" makes [Each] run its tests on miniredis, too.
const backendsEnv = "ONCEGUARD_BACKENDS"

// Each runs test in a subtest with a new server: "redis", or "miniredis" where there is no real one, or both with
// ONCEGUARD_BACKENDS=both. The subtests run in parallel only if test calls t.Parallel.
func Each(t *testing.T, test func(t *testing.T, b Backend)) {
	t.Helper()
	_, err := findServer()
	found := err == nil || required()
	if !found || os.Getenv(backendsEnv) == "both" {
		t.Run("miniredis", func(t *testing.T) { test(t, Mini(t)) })
	}
	if found {
		t.Run("redis", func(t *testing.T) { test(t, Start(t)) })
	}
}

// keyspace has the methods of a Backend that need only Redis commands. Each call dials a new connection, and leaves
// none open.
type keyspace struct {
	addr string
}

func (k keyspace) Addr() string { return k.addr }

func (k keyspace) Client(t testing.TB, opts ...func(*redis.Options)) *redis.Client {
	t.Helper()
	return NewClient(t, k.addr, opts...)
}

func (k keyspace) Keys(t testing.TB) []string {
	t.Helper()
	var keys []string
	k.do(t, "KEYS", func(ctx context.Context, c *redis.Client) (err error) {
		keys, err = c.Keys(ctx, "*").Result()
		return err
	})
	slices.Sort(keys)
	return keys
}

func (k keyspace) Raw(t testing.TB, key string) (value string, ok bool) {
	t.Helper()
	k.do(t, "GET "+key, func(ctx context.Context, c *redis.Client) (err error) {
		value, err = c.Get(ctx, key).Result()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		ok = err == nil
		return err
	})
	return value, ok
}

func (k keyspace) FlushAll(t testing.TB) {
	t.Helper()
	k.do(t, "FLUSHALL", func(ctx context.Context, c *redis.Client) error {
		return c.FlushAll(ctx).Err()
	})
}

// do ends the test if f fails or takes longer than the patience.
func (k keyspace) do(t testing.TB, what string, f func(context.Context, *redis.Client) error) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: k.addr, ContextTimeoutEnabled: true})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := errors.Join(f(ctx, client), client.Close())
	if err != nil {
		t.Fatalf("redistest: %s on %s: %v", what, k.addr, err)
	}
}

// patience bounds every wait. Only a failing test waits this long.
const patience = 60 * time.Second
