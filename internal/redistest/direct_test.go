package redistest_test

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
)

// direct returns a client of a miniredis, for use in a bubble.
func direct(t *testing.T) *redistest.Direct {
	t.Helper()
	server := miniredis.NewMiniRedis()
	t.Cleanup(server.Close)
	return redistest.NewDirect(t, &redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
	})
}

func TestDirectCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := direct(t)
		ctx, c := t.Context(), d.Client
		for what, err := range map[string]error{
			"PING":  c.Ping(ctx).Err(),
			"SET":   c.Set(ctx, "k", "v", time.Minute).Err(),
			"LPUSH": c.LPush(ctx, "list", "a").Err(),
			"HSET":  c.HSet(ctx, "hash", "a", "b").Err(),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if got, err := c.Get(ctx, "k").Result(); got != "v" || err != nil {
			t.Errorf("GET: %q, %v", got, err)
		}
		if err := c.Get(ctx, "none").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("GET of no key: %v, want redis.Nil", err)
		}
		if err := c.Get(ctx, "list").Err(); !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Errorf("GET of a list: %v, want WRONGTYPE", err)
		}
		if got, err := c.PTTL(ctx, "k").Result(); got != time.Minute || err != nil {
			t.Errorf("PTTL: %v, %v", got, err)
		}
		if got, err := c.PTTL(ctx, "none").Result(); got != -2 || err != nil {
			t.Errorf("PTTL of no key: %v, %v", got, err)
		}
		var all *redis.StringSliceCmd
		var hash *redis.MapStringStringCmd
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.PExpire(ctx, "list", time.Second)
			hash, all = p.HGetAll(ctx, "hash"), p.Keys(ctx, "*")
			return nil
		})
		if err != nil || len(all.Val()) != 3 || hash.Val()["a"] != "b" {
			t.Errorf("pipeline: %v, %v, %v", all.Val(), hash.Val(), err)
		}
	})
}

// pong returns a Dialer of a server that answers each read with PONG after a delay.
func pong(after time.Duration) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer func() { _ = server.Close() }()
			for buf := make([]byte, 100); ; {
				if _, err := server.Read(buf); err != nil {
					return
				}
				time.Sleep(after)
				if _, err := server.Write([]byte("+PONG\r\n")); err != nil {
					return
				}
			}
		}()
		return client, nil
	}
}

// There are more callers than connections in go-redis's pool. In the second bubble, that pool would wait with timers of
// the first.
func TestDirectHasNoPool(t *testing.T) {
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			d := redistest.NewDirect(t, &redis.Options{Dialer: pong(time.Second)})
			var callers sync.WaitGroup
			begun := time.Now()
			for range 200 {
				callers.Go(func() {
					if err := d.Client.Ping(t.Context()).Err(); err != nil {
						t.Error(err)
					}
				})
			}
			callers.Wait()
			if took := time.Since(begun); took != time.Second {
				t.Errorf("took %v, want 1 s: no caller waits for another", took)
			}
		})
	}
}

func TestDirectTimeouts(t *testing.T) {
	for name, test := range map[string]struct {
		options redis.Options
		want    time.Duration
	}{
		"ReadTimeout":                {redis.Options{ReadTimeout: 2 * time.Second}, 2 * time.Second},
		"a context that is heeded":   {redis.Options{ContextTimeoutEnabled: true}, time.Second},
		"a context that is not":      {redis.Options{ReadTimeout: 3 * time.Second}, 3 * time.Second},
		"an answer that is too late": {redis.Options{ReadTimeout: time.Minute - 1}, time.Minute - 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.options.Dialer = pong(time.Minute)
				d := redistest.NewDirect(t, &test.options)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				begun := time.Now()
				err := d.Client.Ping(ctx).Err()
				if took := time.Since(begun); !errors.Is(err, os.ErrDeadlineExceeded) || took != test.want {
					t.Errorf("%v after %v, want a timeout after %v", err, took, test.want)
				}
				time.Sleep(time.Minute) // for the server to see that the connection is closed
			})
		})
	}
}

// named is a hook that records the names of commands.
type named struct{ seen []string }

func (*named) DialHook(next redis.DialHook) redis.DialHook { return next }

func (n *named) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n.seen = append(n.seen, cmd.Name())
		return next(ctx, cmd)
	}
}

func (n *named) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		n.seen = append(n.seen, "a pipeline")
		return next(ctx, cmds)
	}
}

// A subscription, on a connection of go-redis, receives what the client publishes.
func TestDirectSubscribesAndHasHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, hook := direct(t), &named{}
		d.AddHook(hook)
		sub := d.Client.Subscribe(t.Context(), "news")
		defer func() { _ = sub.Close() }()
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := d.Client.Publish(t.Context(), "news", "text").Err(); err != nil {
			t.Fatal(err)
		}
		if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != "text" {
			t.Errorf("received %v, %v", m, err)
		}
		_, _ = d.Client.Pipelined(t.Context(), func(p redis.Pipeliner) error { return p.Ping(t.Context()).Err() })
		if want := []string{"publish", "a pipeline"}; !slices.Equal(hook.seen, want) {
			t.Errorf("the hook saw %q, want %q", hook.seen, want)
		}
	})
}
