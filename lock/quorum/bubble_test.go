package quorum_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// In a synctest bubble time stands still while a goroutine runs, and jumps to the next timer when all are blocked: the
// instants are exact.

const ttl = 9 * time.Second

// valid is how long a lease of length ttl is valid.
const valid = ttl - ttl/100 - 2*time.Millisecond

// bubble is a Redis inside a testing/synctest bubble: miniredis on the bubble's clock, reached through pipes in memory.
type bubble struct {
	server *miniredis.Miniredis
	client *redis.Client
	direct *redistest.Direct // whose client that is; takes its hooks
	silent atomic.Bool       // every command is swallowed
}

func newBubble(t *testing.T) *bubble {
	t.Helper()
	b := &bubble{server: miniredis.NewMiniRedis()}
	b.server.ClockTTL(true)
	t.Cleanup(b.server.Close)
	b.direct = redistest.NewDirect(t, &redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			conn, err := b.server.Dial()
			if err == nil {
				b.server.Server().SetPreHook(func(*server.Peer, string, ...string) bool { return b.silent.Load() })
			}
			return conn, err
		},
	})
	b.client = b.direct.Client
	return b
}

// newLocker returns a Locker that is closed at the end of the test, when nothing must be left of its work.
func newLocker(t *testing.T, client redis.UniversalClient, opts ...lock.Option) *lock.Locker {
	t.Helper()
	locker := lock.New(client, "test", append([]lock.Option{lock.WithOpTimeout(time.Minute)}, opts...)...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		wantErr(t, "Close", locker.Close(ctx), nil)
	})
	return locker
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantErr fails the test unless err is want, or nil if that is.
func wantErr(t testing.TB, doing string, err, want error) {
	t.Helper()
	if (want == nil) != (err == nil) || !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", doing, err, want)
	}
}

func acquire(t *testing.T, locker *lock.Locker, key string) *lock.Lease {
	t.Helper()
	lease, ok, err := locker.TryAcquire(t.Context(), key)
	if err != nil || !ok {
		t.Fatalf("TryAcquire: %v, %v", ok, err)
	}
	return lease
}

// load lets the server know the scripts, so that a test sees EVALSHA alone.
func load(t *testing.T, locker *lock.Locker) {
	t.Helper()
	lease := acquire(t, locker, "load")
	must(t, lease.Extend(t.Context(), time.Minute))
	release(t, lease)
}
