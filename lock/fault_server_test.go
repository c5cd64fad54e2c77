package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// fault: redis-server SIGSTOP, shorter than the lease
func TestServerStopsForAWhile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locker, rival := newLocker(t, server.Client(t), lock.WithTTL(6*time.Second)), newLocker(t, server.Client(t))
	lease := acquire(t, locker, "k")
	until := lease.Until()
	server.Pause(t)
	time.Sleep(2500 * time.Millisecond) // a renewal is due after 2 s
	if got := lease.Until(); got != until {
		t.Errorf("Until has moved by %v without an answer", got.Sub(until))
	}
	server.Resume(t)
	for lease.Context().Err() == nil && lease.Until() == until {
		time.Sleep(10 * time.Millisecond)
	}
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the lease has ended: %v", context.Cause(lease.Context()))
	}
	if _, ok, err := rival.TryAcquire(t.Context(), "k"); ok || err != nil {
		t.Errorf("a rival: %v, %v, want false, nil", ok, err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	wantNoClaims(t, server)
}

// TestServerRestartsEmpty tests Settle. Here two holders work at once until the first learns of its loss, and the fence
// counter is lost too.
//
// fault: redis-server kill -9, restarted empty
func TestFencesGrowThoughTheServerRestartsEmpty(t *testing.T) {
	t.Parallel()
	r, server := &register{}, redistest.Start(t)
	locker := newLocker(t, server.Client(t), lock.WithTTL(6*time.Second), lock.WithFencing())
	rival := newLocker(t, server.Client(t), lock.WithFencing())
	first := acquire(t, locker, "k")
	for n := range 3 {
		if !r.write(first.Fence(), n+1) {
			t.Error("the holder's write is refused")
		}
	}
	server.Kill(t)
	server.Restart(t)
	second := acquireNext(t, rival)
	if !r.write(second.Fence(), 4) || r.write(first.Fence(), 5) {
		t.Errorf("after %d the fence is %d", first.Fence(), second.Fence())
	}
	<-first.Context().Done()
	if !time.Now().Before(first.Until()) {
		t.Error("the end of the lease has told, and no renewal before it")
	}
	r.check(t)
}

// fault: FLUSHALL, DEL, eviction of the key
func TestClaimIsRemoved(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*testing.T, *redis.Client, string) error{
		"FLUSHALL": func(t *testing.T, c *redis.Client, _ string) error { return c.FlushAll(t.Context()).Err() },
		"DEL":      func(t *testing.T, c *redis.Client, key string) error { return c.Del(t.Context(), key).Err() },
		"eviction": func(t *testing.T, c *redis.Client, key string) error {
			for n := 0; c.Exists(t.Context(), key).Val() == 1; n++ {
				err := c.Set(t.Context(), fmt.Sprint("ballast", n), strings.Repeat("x", 100_000), 0).Err()
				if err != nil && !redis.HasErrorPrefix(err, "OOM") {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--maxmemory", "4mb", "--maxmemory-policy", "volatile-ttl")
			locker := newLocker(t, server.Client(t), lock.WithTTL(12*time.Second))
			lease := acquire(t, locker, "k")
			if err := remove(t, server.Client(t), locker.StorageKey("k")); err != nil {
				t.Fatal(err)
			}
			removed := time.Now()
			<-lease.Context().Done()
			if took := time.Since(removed); took > 8*time.Second { // a third of the lease, and as much for a busy machine
				t.Errorf("told after %v, want by the first renewal", took)
			}
			if got := context.Cause(lease.Context()); got != lock.ErrLost {
				t.Errorf("cause %v, want ErrLost", got)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("Release of what is gone: %v", err)
			}
		})
	}
}

// fault: maxmemory reached, noeviction
func TestServerIsFull(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]lock.Option{"by SET": nil, "by script": {lock.WithFencing()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			locker, rival := newLocker(t, server.Client(t), opts...), newLocker(t, server.Client(t), opts...)
			load(t, locker)
			settled, released, holder := acquire(t, locker, "settled"), acquire(t, locker, "released"), claimAs(t, locker, "mine")
			if err := settled.Settle(t.Context(), []byte("v"), time.Hour); err != nil {
				t.Fatal(err)
			}
			before := server.Keys(t)
			limit := func(bytes string) {
				if err := server.Client(t).ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
					t.Fatal(err)
				}
			}
			limit("1")
			if claim, err := rival.Claim(t.Context(), "new", nil, 0); !redis.HasErrorPrefix(err, "OOM") {
				t.Errorf("Claim: %v, %v, want the server's OOM", claim.State, err)
			}
			wantHeld(t, rival, "mine", "while the server is full")
			if claim, err := rival.Claim(t.Context(), "settled", nil, 0); err != nil || string(claim.Value) != "v" {
				t.Errorf("the settled key: %v, %q, %v, want v", claim.State, claim.Value, err)
			}
			if got := server.Keys(t); fmt.Sprint(got) != fmt.Sprint(before) {
				t.Errorf("keys %q, want %q", got, before)
			}
			if err := holder.Extend(t.Context(), time.Minute); err != nil {
				t.Errorf("a renewal: %v", err)
			}
			if err := released.Release(t.Context()); err != nil {
				t.Errorf("Release: %v", err)
			}
			if err := holder.Settle(t.Context(), []byte("late"), time.Hour); !redis.HasErrorPrefix(err, "OOM") {
				t.Errorf("Settle: %v, want the server's OOM", err)
			}
			wantHeld(t, rival, "mine", "while Settle is tried again")
			limit("0")
			<-holder.Context().Done()
			if claim, err := rival.Claim(t.Context(), "mine", nil, 0); err != nil || string(claim.Value) != "late" {
				t.Errorf("when there is room: %v, %q, %v, want late", claim.State, claim.Value, err)
			}
		})
	}
}

func claimAs(t *testing.T, locker *lock.Locker, key string) *lock.Lease {
	t.Helper()
	claim, err := locker.Claim(t.Context(), key, []byte("the holder"), 0)
	if err != nil || claim.State != lock.Granted {
		t.Fatalf("%v, %v, want granted", claim.State, err)
	}
	return claim.Lease
}

func wantHeld(t *testing.T, rival *lock.Locker, key, when string) {
	t.Helper()
	claim, err := rival.Claim(t.Context(), key, nil, 0)
	if err != nil || claim.State != lock.Held || string(claim.Note) != "the holder" {
		t.Errorf("%s: %v, %q, %v, want held and the holder's note", when, claim.State, claim.Note, err)
	}
}

// fault: SCRIPT FLUSH
func TestEveryScriptIsFlushed(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		client := b.Client(t)
		locker := newLocker(t, client, lock.WithFencing())
		load(t, locker)
		flushed := func(what string, do func() error) {
			t.Helper()
			if err := client.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			if err := do(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		var first, second *lock.Lease
		flushed("Claim", func() error { first = acquire(t, locker, "k"); return nil })
		flushed("Extend", func() error { return first.Extend(t.Context(), time.Minute) })
		flushed("Release", func() error { return first.Release(t.Context()) })
		flushed("Claim under a hold", func() error { first = claimUnder(t, locker, "k", time.Hour); return nil })
		flushed("Claim of a held key", func() error {
			wantState(t, locker, "held", lock.Held)
			return nil
		})
		flushed("Release", func() error { return first.Release(t.Context()) })
		flushed("Claim", func() error { second = acquire(t, locker, "k"); return nil })
		flushed("Settle", func() error { return second.Settle(t.Context(), []byte("v"), time.Hour) })
		flushed("Wait", func() error {
			claim, err := locker.Wait(t.Context(), "k")
			if string(claim.Value) != "v" {
				t.Errorf("Wait: %v, %q, want v", claim.State, claim.Value)
			}
			return err
		})
		flushed("Forget", func() error { return forget(t.Context(), locker, "k") })
		wantNoClaims(t, b)
	})
}

// TestForeignValuesAreLeftAlone tests the methods of a lease.
//
// fault: a foreign value or type under the key
func TestForeignValueMeetsAClaim(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		client := b.Client(t)
		for name, locker := range map[string]*lock.Locker{
			"by SET": newLocker(t, client), "by script": newLocker(t, client, lock.WithFencing()),
		} {
			for kind, put := range map[string]func(string) error{
				"text": func(key string) error { return client.Set(t.Context(), key, "foreign", 0).Err() },
				"hash": func(key string) error { return client.HSet(t.Context(), key, "f", "foreign").Err() },
				"set":  func(key string) error { return client.SAdd(t.Context(), key, "foreign").Err() },
			} {
				b.FlushAll(t)
				lease := acquire(t, locker, "held")
				key, held := locker.StorageKey("k"), locker.StorageKey("held")
				if err := errors.Join(client.Del(t.Context(), held).Err(), put(key), put(held)); err != nil {
					t.Fatal(err)
				}
				before := client.Dump(t.Context(), key).Val()
				for what, do := range map[string]func() error{
					"Claim":   func() error { _, err := locker.Claim(t.Context(), "k", nil, 0); return err },
					"Acquire": func() error { _, err := locker.Acquire(t.Context(), "k"); return err },
					"Wait":    func() error { _, err := locker.Wait(t.Context(), "k"); return err },
				} {
					if err := do(); !errors.Is(err, lock.ErrForeign) {
						t.Errorf("%s: %s of a %s: %v, want ErrForeign", name, what, kind, err)
					}
				}
				if err := lease.Extend(t.Context(), time.Hour); !errors.Is(err, lock.ErrLost) {
					t.Errorf("%s: Extend of a %s: %v, want ErrLost", name, kind, err)
				}
				for _, key := range []string{key, held} {
					if after := client.Dump(t.Context(), key).Val(); after != before {
						t.Errorf("%s: the %s is now %q, want it untouched", name, kind, after)
					}
					if left := client.PTTL(t.Context(), key).Val(); left >= 0 {
						t.Errorf("%s: the %s expires in %v, want never", name, kind, left)
					}
				}
			}
		}
	})
}
