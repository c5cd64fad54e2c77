package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// await calls look every few milliseconds until it returns nil, but not beyond
// the patience. Its error is the last one that look returned in that time.
func await(look func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	var last error
	for {
		err := look(ctx)
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

// glance asks a server that may be dead, or paused, which costs the caller half
// a second. It dials by itself, since go-redis logs every refusal.
func (k keyspace) glance(ctx context.Context, ask func(context.Context, *redis.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	conn, err := connect(ctx, k.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	o := &redis.Options{Addr: k.addr}
	OneTry(o)
	o.Dialer = func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	client := redis.NewClient(o)
	return errors.Join(ask(ctx, client), client.Close())
}

// connect dials a server, which then has to answer within half a second.
func connect(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 500 * time.Millisecond}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
