package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// await calls check every 10 ms until it returns nil, for at most the patience. Its error is the last one that check
// returned in that time.
func await(check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", patience, last)
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
