package lock_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// scanned returns the state of every key that a scan finds, the foreign ones as 0.
func scanned(t *testing.T, locker *lock.Locker, count int) (states map[string]lock.State, steps int) {
	t.Helper()
	states = map[string]lock.State{}
	for found, err := range locker.Scan(t.Context(), count) {
		if err != nil {
			t.Fatal(err)
		}
		steps++
		for _, info := range found.Infos {
			if info.Token == "" || info.Size == 0 {
				t.Errorf("%+v", info)
			}
			states[info.Key] = info.State
		}
		for _, key := range found.Foreign {
			states[key] = 0
		}
	}
	return states, steps
}

func TestScan(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		client := b.Client(t)
		const odd = `odd*?[a-z]\ namespace`
		opts := []lock.Option{lock.WithFencing(), lock.WithoutRenewal(), lock.WithOpTimeout(20 * time.Second)}
		dies := lock.New(client, odd, opts...)
		defer closeWithin(t, dies)
		locker := lock.New(client, odd, append(opts, lock.WithTTL(time.Minute))...)
		defer closeWithin(t, locker)
		similar := newLocker(t, client)
		want := map[string]lock.State{}
		states := []lock.State{lock.Abandoned, lock.Held, lock.Settled}
		for i := range 150 {
			key := fmt.Sprint("key ", i)
			state := states[i/50]
			if state == lock.Abandoned {
				leave(t, dies, b, key, state)
				b.Elapse(t, time.Millisecond)
			} else {
				leave(t, locker, b, key, state)
			}
			want[locker.StorageKey(key)] = state
			leave(t, similar, b, key, lock.Settled)
		}
		foreign := locker.StorageKey("foreign")
		want[foreign] = 0
		for _, key := range []string{foreign, odd + ":{0000}" + strings.Repeat("a", 64), "oddXYa: x"} {
			if err := client.Set(t.Context(), key, "not ours", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for _, count := range []int{7, 1000} {
			got, steps := scanned(t, locker, count)
			if !maps.Equal(got, want) {
				t.Errorf("count %d: found %d keys, want %d", count, len(got), len(want))
			}
			if _, isReal := b.(*redistest.Server); isReal && count == 7 && steps < 30 {
				t.Errorf("%d steps of 7 keys", steps)
			}
		}
	})
}

// Nothing is sent before the loop asks for the next step, nor after it was left.
func TestScanIsPacedByItsLoop(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	locker := newLocker(t, proxy.Client(t), lock.WithoutRenewal())
	for i := range 100 {
		leave(t, locker, server, fmt.Sprint(i), lock.Held)
	}
	sent := func() (n int) {
		for _, c := range proxy.Commands() {
			if strings.HasPrefix(c, "SCAN") {
				n++
			}
		}
		return n
	}
	steps := 0
	for _, err := range locker.Scan(t.Context(), 5) {
		if err != nil {
			t.Fatal(err)
		}
		if steps++; sent() != steps {
			t.Fatalf("%d SCANs at step %d", sent(), steps)
		}
		if steps == 3 {
			break
		}
	}
	if sent() != 3 {
		t.Errorf("%d SCANs after the loop", sent())
	}
}

func TestScanFails(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, redistest.Mini(t).Client(t))
	for _, count := range []int{0, -1, 1001} {
		if got := recovered(func() { locker.Scan(t.Context(), count) }); !strings.Contains(got, "lock.Scan: count") {
			t.Errorf("count %d: panic %q", count, got)
		}
	}
	away := newLocker(t, redistest.NewClient(t, "127.0.0.1:1", func(o *redis.Options) { o.DialerRetries = 1 }))
	steps := 0
	for found, err := range away.Scan(t.Context(), 10) {
		if steps++; err == nil || len(found.Infos) > 0 {
			t.Errorf("%+v, %v, want an error", found, err)
		}
	}
	if steps != 1 {
		t.Errorf("%d steps, want one with the error", steps)
	}
	closeWithin(t, locker)
	for _, err := range locker.Scan(t.Context(), 10) {
		if !errors.Is(err, lock.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	}
}

// An operator's calls on keys of every master. See TestCluster.
func testClusterOperator(t *testing.T, c *redistest.Cluster) {
	holder := lock.New(c.Client(t), "operated", lock.WithFencing(), lock.WithoutRenewal(), lock.WithTTL(time.Second),
		lock.WithOpTimeout(20*time.Second))
	defer closeWithin(t, holder)
	operator := lock.New(c.Client(t), "operated", lock.WithOpTimeout(20*time.Second))
	defer closeWithin(t, operator)
	var keys []string
	owners := map[*redistest.Server]int{}
	for i := 0; len(keys) < 30 || len(owners) < 3; i++ {
		key := fmt.Sprint("operated ", i)
		lease := claimUnder(t, holder, key, time.Hour)
		lease.Abandon()
		keys = append(keys, holder.StorageKey(key))
		owners[c.Owner(t, holder.StorageKey(key))]++
	}
	eventually(t, "all are abandoned", func() bool {
		states, _ := scanned(t, operator, 100)
		found := slices.Sorted(maps.Keys(states))
		if !slices.Equal(found, slices.Sorted(slices.Values(keys))) {
			t.Fatalf("found %d keys, want %d", len(found), len(keys))
		}
		return !slices.Contains(slices.Collect(maps.Values(states)), lock.Held)
	})
	for i, key := range keys {
		info, err := operator.Inspect(t.Context(), key)
		if err != nil || info.State != lock.Abandoned || info.Fence == 0 {
			t.Fatalf("%+v, %v", info, err)
		}
		if err := operator.Forget(t.Context(), key, lockToken); !errors.Is(err, lock.ErrChanged) {
			t.Errorf("wrong token: %v", err)
		}
		want := lock.Free
		if i%2 == 0 {
			err = operator.Forget(t.Context(), key, info.Token)
		} else {
			want = lock.Settled
			settle := func([]byte) ([]byte, error) { return []byte("mine"), nil }
			err = operator.SettleAbandoned(t.Context(), key, info.Token, settle, time.Hour)
		}
		if err != nil {
			t.Errorf("%s: %v", key, err)
		}
		if info, err = operator.Inspect(t.Context(), key); err != nil || info.State != want {
			t.Errorf("%+v, %v, want %v", info, err, want)
		}
	}
}
