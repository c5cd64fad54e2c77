package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// silence makes as many connections fall silent as there may be batches in flight, and returns when their callers have
// given up.
func silence(t *testing.T, p *redistest.Proxy, locker *lock.Locker, prefix string, limit time.Duration) (keys []string) {
	t.Helper()
	keys = names(prefix, maxInFlight)
	silent := p.SwallowReply(redistest.Named("SET"))
	begun := time.Now()
	l := tryAll(t, locker, keys)
	for range keys {
		silent.Wait(t)
	}
	silent.Lift()
	for i := range keys {
		if err := l.wait(t, i); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryAcquire: %v, want DeadlineExceeded", err)
		}
	}
	if took := time.Since(begun); took < limit || took > limit+5*time.Second { // a busy machine's
		t.Errorf("TryAcquire took %v, want %v", took, limit)
	}
	return keys
}

// Silent connections do not delay calls that come when their time is over, and the claims that were written to them are
// released over other connections.
//
// fault: a connection falls silent
func TestSilentBatches(t *testing.T) {
	t.Parallel()
	const limit = 5 * time.Second
	for name, opt := range map[string]func(*redis.Options){
		"default client":     func(*redis.Options) {},
		"client without end": func(o *redis.Options) { o.ReadTimeout = -1 },
		"pool of 20":         func(o *redis.Options) { o.ReadTimeout, o.PoolSize = -1, 20 },
		"heeds contexts":     honorsDeadlines,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				t.Parallel()
				p := redistest.NewProxy(t, b.Addr())
				locker := newLocker(t, p.Client(t, opt), lock.WithOpTimeout(limit))
				load(t, newLocker(t, b.Client(t)))
				for round := range redistest.Rounds(1, 2) {
					keys := silence(t, p, locker, fmt.Sprint("silent ", round, " "), limit)
					for _, key := range names(fmt.Sprint("k", round, " "), 20) {
						begun := time.Now()
						if err := acquire(t, locker, key).Release(t.Context()); err != nil {
							t.Errorf("Release: %v", err)
						}
						if took := time.Since(begun); took > limit*4/5 {
							t.Errorf("acquire and release took %v", took)
						}
					}
					eventually(t, "what has arrived is released", func() bool {
						return !slices.ContainsFunc(keys, func(key string) bool {
							_, ok := b.Raw(t, locker.StorageKey(key))
							return ok
						})
					})
				}
				p.Heal()
				closeWithin(t, locker)
				wantNoClaims(t, b)
			})
		})
	}
}
