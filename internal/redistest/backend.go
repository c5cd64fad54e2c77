package redistest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Backend is a Redis server, real or not, that a test has for itself: what
// both kinds can do. [*Server] is one, [Mini] returns the other.
type Backend interface {
	// Addr is the host:port it listens on.
	Addr() string

	// Client returns a client of this server, as [NewClient] does.
	Client(t testing.TB, opts ...func(*redis.Options)) *redis.Client

	// Elapse lets d pass for every key that has a TTL, and for nothing else:
	// TTLs shrink by d, keys whose TTL is not longer than d are gone, and
	// no clock moves. miniredis does so natively, and besides never expires
	// a key. A real server's keys are rewritten in one step, d counting in
	// whole milliseconds; those that end are deleted, which publishes "del"
	// and not "expired", and real time goes on passing as well.
	Elapse(t testing.TB, d time.Duration)

	// Keys returns every key of database 0, sorted.
	Keys(t testing.TB) []string

	// Raw returns the string stored under key, and whether there is one. A
	// value that is not a string fails the test.
	Raw(t testing.TB, key string) (value string, ok bool)

	// FlushAll removes every key of every database.
	FlushAll(t testing.TB)
}

// Each runs test twice, each time with a fresh server: as the subtest
// "miniredis", and as the subtest "redis", which [Start] may skip. With
// ONCEGUARD_SERVERS the second one has the name and the version of the server,
// as "valkey-8.1.1". Whether they run in parallel is for test to say.
func Each(t *testing.T, test func(t *testing.T, b Backend)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) { test(t, Mini(t)) })
	t.Run(realName, func(t *testing.T) { test(t, Start(t)) })
}

// keyspace is the part of a Backend that any server answers over the wire. It
// connects anew for each call, so that nothing of it stays behind on the
// server, and a restart does not meet it.
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

// do ends the test if f fails, or has no answer within the patience.
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

// patience bounds every wait for something that is about to happen. Only a
// test that fails waits this long.
const patience = 20 * time.Second
