package lock_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// fenceKey returns the key of the fence counter of key.
func fenceKey(storageKey string) string {
	return storageKey[:strings.Index(storageKey, "}")+1] + "fence"
}

func TestFence(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		ctx := t.Context()
		locker := newLocker(t, b.Client(t), lock.WithFencing())
		other := newLocker(t, b.Client(t), lock.WithFencing())

		start := time.Now()
		lease := acquire(t, locker, "k")
		last := lease.Fence()
		if got := time.UnixMicro(last); got.Before(start.Add(-time.Minute)) || got.After(time.Now().Add(time.Minute)) {
			t.Errorf("the first number is %d, want the time in microseconds", last)
		}
		for i := range 20 {
			if err := lease.Release(ctx); err != nil {
				t.Fatal(err)
			}
			next := []*lock.Locker{locker, other}[i%2]
			if i%3 == 0 {
				claim, err := next.Claim(ctx, "k", []byte("note"), 0)
				if err != nil || claim.State != lock.Granted {
					t.Fatal(claim.State, err)
				}
				lease = claim.Lease
			} else {
				lease = acquire(t, next, "k")
			}
			if got := lease.Fence(); got <= last {
				t.Errorf("after %d came %d", last, got)
			}
			last = lease.Fence()
		}
		if claim, err := other.Claim(ctx, "k", nil, 0); err != nil || claim.State != lock.Held || string(claim.Note) != "" {
			t.Errorf("held: %v %q, %v", claim.State, claim.Note, err)
		}
		if got, _ := b.Raw(t, fenceKey(locker.StorageKey("k"))); got != strconv.FormatInt(last, 10) {
			t.Errorf("the counter is %q, want %d", got, last)
		}
		if keys := b.Keys(t); len(keys) != 2 {
			t.Errorf("keys %q, want the claim and the counter", keys)
		}
	})
}

// A counter that is ahead of the server's clock goes on from there; one that was lost does not begin again at 1.
func TestFenceAheadOfTheClock(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locker := newLocker(t, b.Client(t), lock.WithFencing())
		const ahead = 9_000_000_000_000_000 // of all clocks; the largest that Lua counts exactly is a little above
		counter := fenceKey(locker.StorageKey("k"))
		if err := b.Client(t).Set(t.Context(), counter, ahead, 0).Err(); err != nil {
			t.Fatal(err)
		}
		lease := acquire(t, locker, "k")
		if got := lease.Fence(); got != ahead+1 {
			t.Errorf("after %d came %d", int64(ahead), got)
		}
		if ttl := b.Client(t).TTL(t.Context(), counter).Val(); ttl >= 0 {
			t.Errorf("the counter expires in %v", ttl)
		}
		b.FlushAll(t)
		before := time.Now().Add(-time.Minute).UnixMicro()
		if got := acquire(t, locker, "k").Fence(); got < before {
			t.Errorf("after the counter was lost came %d", got)
		}
	})
}

func TestNoFenceWithoutTheOption(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		if got := acquire(t, newLocker(t, b.Client(t)), "k").Fence(); got != 0 {
			t.Errorf("Fence() = %d, want 0", got)
		}
		if keys := b.Keys(t); len(keys) != 1 {
			t.Errorf("keys %q, want the claim alone", keys)
		}
	})
}

// Keys that share a tag share a counter, in whatever order they are taken.
func TestFenceIsSharedByTag(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locker := newLocker(t, b.Client(t), lock.WithFencing())
		a, c := sameTag(locker)
		var mu sync.Mutex
		seen := map[int64]bool{}
		var running sync.WaitGroup
		for _, key := range []string{a, c} {
			running.Go(func() {
				for range 50 {
					lease, err := locker.Acquire(context.Background(), key)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if seen[lease.Fence()] {
						t.Errorf("%d came twice", lease.Fence())
					}
					seen[lease.Fence()] = true
					mu.Unlock()
					if err := lease.Release(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		running.Wait()
		if keys := b.Keys(t); len(keys) != 1 {
			t.Errorf("left: %q, want one counter", keys)
		}
	})
}

// sameTag returns two keys whose hashes begin with the same 14 bits.
func sameTag(locker *lock.Locker) (a, b string) {
	seen := map[string]string{}
	for i := 0; ; i++ {
		key := strconv.Itoa(i)
		counter := fenceKey(locker.StorageKey(key))
		if other, ok := seen[counter]; ok {
			return other, key
		}
		seen[counter] = key
	}
}

// A counter of another type is left alone, and the error names its key, which is not that of the lease.
//
// fault: a foreign value or type under the key
func TestFenceCounterOfAnotherType(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		client := b.Client(t)
		locker := newLocker(t, client, lock.WithFencing())
		counter := fenceKey(locker.StorageKey("k"))
		if err := client.RPush(t.Context(), counter, "foreign").Err(); err != nil {
			t.Fatal(err)
		}
		_, ok, err := locker.TryAcquire(t.Context(), "k")
		if ok || err == nil || errors.Is(err, lock.ErrForeign) || !strings.Contains(err.Error(), counter) {
			t.Errorf("TryAcquire: %v, %v, want an error that names %s, and not ErrForeign", ok, err, counter)
		}
		if got := client.LRange(t.Context(), counter, 0, -1).Val(); len(got) != 1 || len(b.Keys(t)) != 1 {
			t.Errorf("the counter is now %q, keys %q", got, b.Keys(t))
		}
	})
}
