package lock_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
)

// bubble is a Redis inside a testing/synctest bubble: miniredis on the bubble's clock, reached through pipes in memory.
type bubble struct {
	server *miniredis.Miniredis
	client *redis.Client
	silent atomic.Bool // every command is swallowed
	full   atomic.Bool // every Settle is
	deaf   atomic.Bool // what the server says is

	mu   sync.Mutex
	seen map[string]int
}

func newBubble(t *testing.T) *bubble {
	t.Helper()
	b := &bubble{server: miniredis.NewMiniRedis(), seen: map[string]int{}}
	b.server.ClockTTL(true)
	b.client = redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:6379", // never dialled; a name would be looked up
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			conn, err := b.server.Dial()
			if err != nil {
				return nil, err
			}
			b.server.Server().SetPreHook(b.hook)
			return deafConn{conn, b}, nil
		},
		MaxRetries: -1,
	})
	t.Cleanup(func() {
		if err := b.client.Close(); err != nil {
			t.Error(err)
		}
		b.server.Close()
	})
	return b
}

// deafConn swallows what the server says while b is deaf.
type deafConn struct {
	net.Conn
	b *bubble
}

func (c deafConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.b.deaf.Load() {
			return n, err
		}
	}
}

// hook counts commands, and swallows those that it is to swallow.
func (b *bubble) hook(_ *server.Peer, cmd string, args ...string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen[strings.ToUpper(cmd)]++
	settles := strings.Contains(strings.Join(args, " "), "OGv")
	return b.silent.Load() || b.full.Load() && settles
}

func (b *bubble) commands(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen[name]
}

func (b *bubble) locker(t *testing.T, opts ...lock.Option) *lock.Locker {
	t.Helper()
	return newLocker(t, b.client, append([]lock.Option{lock.WithOpTimeout(500 * time.Millisecond)}, opts...)...)
}

// newLocker returns a Locker that is closed at the end of the test, when nothing must be left of its work. Its time for
// one operation is long, for a busy machine must not fail a test.
func newLocker(t *testing.T, client redis.UniversalClient, opts ...lock.Option) *lock.Locker {
	t.Helper()
	locker := lock.New(client, "test", append([]lock.Option{lock.WithOpTimeout(20 * time.Second)}, opts...)...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := locker.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return locker
}

func acquire(t *testing.T, locker *lock.Locker, key string) *lock.Lease {
	t.Helper()
	lease, ok, err := locker.TryAcquire(t.Context(), key)
	if err != nil || !ok {
		t.Fatalf("TryAcquire: %v, %v", ok, err)
	}
	return lease
}
