package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// After Check, Settle and Release send no script to a server that has SET with IFEQ, and DELEX or DELIFEQ. A duplicate
// that waits is woken all the same. What a key holds afterwards does not depend on the server.
func TestNativeCommands(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		checkNatives(t, b.Client(t))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		checkNatives(t, redistest.StartCluster(t, 3, 0).Client(t))
	})
}

func checkNatives(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	ctx, scripts := t.Context(), new(scriptHook)
	client.AddHook(scripts)
	locker := newLocker(t, client)
	if err := locker.Check(ctx); err != nil && !errors.Is(err, lock.ErrOldVersion) { // miniredis has no version
		t.Fatal(err)
	}
	claim := func(key string) *lock.Lease {
		t.Helper()
		c, err := locker.Claim(ctx, key, []byte("note"), time.Hour)
		if err != nil || c.State != lock.Granted {
			t.Fatalf("Claim: %v, %v", c.State, err)
		}
		return c.Lease
	}
	holds := func(key string, want lock.State, value string) {
		t.Helper()
		if c, err := locker.Look(ctx, key); err != nil || c.State != want || string(c.Value) != value {
			t.Errorf("%s: %v %q, %v, want %v %q", key, c.State, c.Value, err, want, value)
		}
	}

	lease, before := claim("settled"), scripts.n.Load()
	if err := lease.Settle(ctx, []byte("value"), time.Minute); err != nil {
		t.Errorf("Settle: %v", err)
	}
	settling := scripts.n.Load() - before
	holds("settled", lock.Settled, "value")
	lease, before = claim("released"), scripts.n.Load()
	if err := lease.Release(ctx); err != nil {
		t.Errorf("Release: %v", err)
	}
	releasing := scripts.n.Load() - before
	holds("released", lock.Free, "")
	if want := scriptsWithout(t, client, "set", "released", "", "ifeq", "", "px", "1"); settling != want {
		t.Errorf("Settle has sent %d scripts, want %d", settling, want)
	}
	want := int64(1) // in a Cluster
	if _, isCluster := client.(*redis.ClusterClient); !isCluster {
		want = min(scriptsWithout(t, client, "delex", "released", "ifeq", ""), scriptsWithout(t, client, "delifeq", "released", ""))
	}
	if releasing != want {
		t.Errorf("Release has sent %d scripts, want %d", releasing, want)
	}

	awaited := claim("awaited")
	woken := make(chan lock.Claim, 1)
	go func() {
		c, _ := locker.Wait(context.WithoutCancel(ctx), "awaited")
		woken <- c
	}()
	eventually(t, "the claim is marked", func() bool {
		stored := client.Get(ctx, locker.StorageKey("awaited")).Val()
		return len(stored) > 20 && stored[20] == 1
	})
	if err := awaited.Settle(ctx, []byte("value"), time.Minute); err != nil {
		t.Errorf("Settle with a waiter: %v", err)
	}
	if c := <-woken; c.State != lock.Settled {
		t.Errorf("the waiter gets %v", c.State)
	}

	lost := claim("lost")
	client.Set(ctx, locker.StorageKey("lost"), "foreign", 0)
	if err := lost.Release(ctx); err == nil {
		t.Error("Release over a foreign value: no error")
	}
	if got := client.Get(ctx, locker.StorageKey("lost")).Val(); got != "foreign" {
		t.Errorf("Release has left %q", got)
	}
	absent := claim("absent")
	client.Del(ctx, locker.StorageKey("absent"))
	if err := absent.Settle(ctx, []byte("value"), time.Minute); err != nil {
		t.Errorf("Settle under an absent key: %v", err)
	}
	holds("absent", lock.Settled, "value")
}

// scriptHook counts the scripts that a client sends.
type scriptHook struct{ n atomic.Int64 }

func (*scriptHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *scriptHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" { // and not the EVAL that follows if the server has forgotten the script
			h.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (*scriptHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// scriptsWithout returns how many scripts stand for a native command: 0 if the server knows it, and otherwise 1.
func scriptsWithout(t *testing.T, client redis.UniversalClient, args ...any) int64 {
	t.Helper()
	if err := client.Do(t.Context(), args...).Err(); err != nil && err != redis.Nil {
		return 1
	}
	return 0
}
