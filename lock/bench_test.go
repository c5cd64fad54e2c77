package lock_test

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// BenchmarkCallers compares the cost of one request, a claim and a settlement of 1 KiB, with that of the two bare
// commands, at several numbers of concurrent callers.
func BenchmarkCallers(b *testing.B) {
	for _, callers := range []int{1, 16, 64, 256} {
		srv := redistest.Start(b)
		client := srv.Client(b, func(o *redis.Options) { o.PoolSize = max(callers, 10) })
		locker := lock.New(client, "bench")
		b.Cleanup(func() { _ = locker.Close(context.Background()) })
		value := bytes.Repeat([]byte("x"), 1<<10)

		b.Run(fmt.Sprintf("bare/%d", callers), func(b *testing.B) {
			inParallel(b, callers, func(ctx context.Context, key string) error {
				err := client.SetArgs(ctx, key, "claim", redis.SetArgs{Mode: "NX", Get: true, TTL: time.Minute}).Err()
				if err != redis.Nil {
					return fmt.Errorf("SET: %w", err)
				}
				return compareAndSet.Run(ctx, client, []string{key}, "claim", value, 60_000).Err()
			})
		})
		b.Run(fmt.Sprintf("lock/%d", callers), func(b *testing.B) {
			inParallel(b, callers, func(ctx context.Context, key string) error {
				claim, err := locker.Claim(ctx, key, nil, 0)
				if err != nil {
					return err
				}
				return claim.Lease.Settle(ctx, value, time.Minute)
			})
		})
	}
}

var compareAndSet = redis.NewScript(`
local held = redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1)
if held == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return held`)

var benchKeys atomic.Int64

// inParallel calls f with keys of its own, from so many goroutines at a time.
func inParallel(b *testing.B, callers int, f func(ctx context.Context, key string) error) {
	b.ReportAllocs()
	todo := make(chan struct{}, b.N)
	for range b.N {
		todo <- struct{}{}
	}
	close(todo)
	errs := make(chan error, callers)
	for range callers {
		go func() {
			var err error
			for range todo {
				if err == nil {
					err = f(b.Context(), strconv.FormatInt(benchKeys.Add(1), 10))
				}
			}
			errs <- err
		}()
	}
	for range callers {
		if err := <-errs; err != nil {
			b.Error(err)
		}
	}
}
