package redistest

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// await calls check every 10 ms until it returns nil. After the patience it ends the test with the last error that check
// returned in that time.
func await(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	var last error
	for err := check(ctx); err != nil; err = check(ctx) {
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("redistest: %s: after %v: %v", what, patience, last)
		}
	}
}

// query calls f with a client of a server that may be dead or paused. It takes half a second at most. It dials without
// go-redis, which would log every refused connection.
func (k keyspace) query(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", k.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	o := &redis.Options{Addr: k.addr}
	OneTry(o)
	o.Dialer = func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	client := redis.NewClient(o)
	return errors.Join(f(ctx, client), client.Close())
}
