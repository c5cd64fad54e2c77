package lock_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// fenceKey returns the key of the fence counter of key.
func fenceKey(storageKey string) string {
	return storageKey[:strings.Index(storageKey, "}")+1] + "fence"
}

// The first number is the time. It grows from lease to lease of any Locker and key with the tag, by one if the counter is
// ahead of the clock. A counter that was lost does not begin again at 1.
func TestFence(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locker, other := newLocker(t, b.Client(t), lock.WithFencing()), newLocker(t, b.Client(t), lock.WithFencing())
		first, second := sameTag(locker)
		counter := fenceKey(locker.StorageKey(first))
		last := time.Now().Add(-time.Minute).UnixMicro()
		for i := range 20 {
			lease := acquire(t, []*lock.Locker{locker, other}[i%2], []string{first, second}[i/2%2])
			if got := lease.Fence(); got <= last || got > time.Now().Add(time.Minute).UnixMicro() {
				t.Errorf("after %d came %d", last, got)
			}
			last = lease.Fence()
			release(t, lease)
		}
		if got, _ := b.Raw(t, counter); got != strconv.FormatInt(last, 10) || len(b.Keys(t)) != 1 {
			t.Errorf("the counter is %q, want %d; keys %q", got, last, b.Keys(t))
		}
		const ahead = 9_000_000_000_000_000 // of all clocks; the largest that Lua counts exactly is a little above
		must(t, b.Client(t).Set(t.Context(), counter, ahead, 0).Err())
		if got := claimUnder(t, locker, first, 0).Fence(); got != ahead+1 {
			t.Errorf("after %d came %d", int64(ahead), got)
		}
		if ttl := b.Client(t).TTL(t.Context(), counter).Val(); ttl >= 0 {
			t.Errorf("the counter expires in %v", ttl)
		}
		b.FlushAll(t)
		if got := acquire(t, locker, first).Fence(); got < last-time.Minute.Microseconds() || got >= ahead {
			t.Errorf("after the counter was lost came %d", got)
		}
	})
}

func TestNoFenceWithoutTheOption(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		if got := acquire(t, newLocker(t, b.Client(t)), "k").Fence(); got != 0 || len(b.Keys(t)) != 1 {
			t.Errorf("Fence() = %d, want 0; keys %q, want the claim alone", got, b.Keys(t))
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
		client, locker := b.Client(t), newLocker(t, b.Client(t), lock.WithFencing())
		counter := fenceKey(locker.StorageKey("k"))
		must(t, client.RPush(t.Context(), counter, "foreign").Err())
		_, ok, err := locker.TryAcquire(t.Context(), "k")
		if ok || err == nil || errors.Is(err, lock.ErrForeign) || !strings.Contains(err.Error(), counter) {
			t.Errorf("TryAcquire: %v, %v, want an error that names %s, and not ErrForeign", ok, err, counter)
		}
		if got := client.LRange(t.Context(), counter, 0, -1).Val(); len(got) != 1 || len(b.Keys(t)) != 1 {
			t.Errorf("the counter is now %q, keys %q", got, b.Keys(t))
		}
	})
}
