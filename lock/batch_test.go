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

// maxAlone is how many commands go alone, as internal/pipeline/pacer.go has it. Later ones wait.
const maxAlone = 8

// names returns n keys that begin with prefix.
func names(prefix string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint(prefix, i))
	}
	return keys
}

// claimAll claims keys at the same time. The i-th channel gets the error of the i-th claim.
func claimAll(t *testing.T, locker *lock.Locker, hold time.Duration, keys []string) (errs []chan error) {
	t.Helper()
	for _, key := range keys {
		ended := make(chan error, 1)
		errs = append(errs, ended)
		go func() {
			_, err := locker.Claim(t.Context(), key, nil, hold)
			ended <- err
		}()
	}
	return errs
}

// Commands that come while others are in flight are sent together. Each has its own reply, or its own failure.
//
// fault: a foreign value or type under the key
// fault: reply to the claim dropped
func TestBatch(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	onBoth(t, func(t *testing.T, b redistest.Backend, p *redistest.Proxy, _, rival *lock.Locker) {
		const n, foreign, lost = 60, 25, 33
		// After a tenth of the time for one operation, batches that the test holds do not count any more.
		locker := newLocker(t, p.Client(t, patient), lock.WithOpTimeout(time.Hour), lock.WithTTL(2*time.Hour))
		keys := names("k", n)
		must(t, b.Client(t).HSet(t.Context(), locker.StorageKey(keys[foreign]), "f", "v").Err())
		held := p.HoldReply(redistest.Named("SET"))
		errs := claimAll(t, locker, 0, keys)
		eventually(t, "all are queued or sent", func() bool { s := locker.Stats(); return s.Queued+s.InFlight == n })
		p.Reset()
		drop := p.DropReply(redistest.Nth(1, func(c redistest.Command) bool {
			return c.Name == "SET" && string(c.Args[0]) == locker.StorageKey(keys[lost])
		}))
		held.Lift()
		for i, key := range keys {
			if err := <-errs[i]; (err == nil) != (i != foreign) || i == foreign && !errors.Is(err, lock.ErrForeign) {
				t.Errorf("%s: %v", key, err)
			}
		}
		if drop.Wait(t); p.RoundTrips() > n/2 {
			t.Errorf("%d claims in %d round trips", n, p.RoundTrips())
		}
		inspect(t, rival, keys[lost], lock.Held)
	})
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
					keys, silent := names(fmt.Sprint("silent ", round, " "), maxAlone), p.SwallowReply(redistest.Named("SET"))
					errs := claimAll(t, locker, 0, keys)
					for range keys {
						silent.Wait(t)
					}
					silent.Lift()
					for _, ended := range errs {
						wantErr(t, "Claim", <-ended, context.DeadlineExceeded)
					}
					for _, key := range names(fmt.Sprint("k", round, " "), 20) {
						release(t, acquire(t, locker, key))
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
