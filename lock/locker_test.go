package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// fault: TTL of 0, below 1 ms, negative
func TestWrongConfigurationPanics(t *testing.T) {
	t.Parallel()
	client := redistest.Mini(t).Client(t)
	var none context.Context
	ring := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() { _ = ring.Close() })

	for want, f := range map[string]func(){
		"lock.New: client":           func() { lock.New(nil, "n") },
		"lock.New: namespace":        func() { lock.New(client, "") },
		"must be a text":             func() { lock.New(client, "a{b}") },
		"Ring":                       func() { lock.New(ring, "n") },
		"option 2 is nil":            func() { lock.New(client, "n", lock.WithFencing(), nil) },
		"WithTTL: 0s":                func() { lock.WithTTL(0) },
		"WithTTL: 999µs":             func() { lock.WithTTL(999 * time.Microsecond) },
		"WithTTL: -1s":               func() { lock.WithTTL(-time.Second) },
		"WithTTL: 87600h0":           func() { lock.WithTTL(lock.MaxHold + 1) },
		"WithOpTimeout":              func() { lock.WithOpTimeout(0) },
		"WithOpTimeout: 2562":        func() { lock.WithOpTimeout(math.MaxInt64) },
		"WithRetry":                  func() { lock.WithRetry(lock.Retry{Min: -1}) },
		"Min <= Max":                 func() { lock.WithRetry(lock.Retry{Min: 2, Max: 1}) },
		"Attempts >= 0":              func() { lock.WithRetry(lock.Retry{Attempts: -1}) },
		"WithReplicas: n is 0":       func() { lock.WithReplicas(0, time.Second) },
		"WithReplicas: 999.":         func() { lock.WithReplicas(1, time.Millisecond-1) },
		"WithReplicas: 500ms is not": func() { lock.New(client, "n", lock.WithReplicas(1, 500*time.Millisecond)) },
		"WithReplicas: 1s is not": func() {
			lock.New(client, "n", lock.WithReplicas(1, time.Second), lock.WithOpTimeout(time.Second))
		},
		"WithBaseContext: ctx is nil": func() { lock.WithBaseContext(none) },
		"option 1 is nil":             func() { _ = lock.None("n").Forget(t.Context(), "k", "", nil) },
		"lock.Scan: count":            func() { lock.None("n").Scan(t.Context(), 1001) },
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("panic %q, want one that has %q", got, want)
				}
			}()
			f()
		})
	}
}

func TestStorageKey(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, redistest.Mini(t).Client(t))

	// SHA-256("abc") begins with ba78: 1011 1010 0111 10 are its first 14 bits.
	want := "test:{2e9e}ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	if got := locker.StorageKey("abc"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestNothingRawIsStored(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locker := newLocker(t, b.Client(t))
		acquire(t, locker, "the secret of ann")
		keys := b.Keys(t)
		if len(keys) != 1 || !regexp.MustCompile(`^test:\{[0-9a-f]{4}\}[0-9a-f]{64}$`).MatchString(keys[0]) {
			t.Errorf("keys %q, want one, hashed", keys)
		}
		if value, _ := b.Raw(t, keys[0]); strings.Contains(value, "ann") {
			t.Errorf("the value has the key's text: %q", value)
		}
	})
}

// fault: a foreign value or type under the key
func TestForeignValuesAreLeftAlone(t *testing.T) {
	t.Parallel()
	values := map[string]func(context.Context, *redis.Client, string) error{
		"text":  func(ctx context.Context, c *redis.Client, k string) error { return c.Set(ctx, k, "foreign", 0).Err() },
		"empty": func(ctx context.Context, c *redis.Client, k string) error { return c.Set(ctx, k, "", 0).Err() },
		"long text": func(ctx context.Context, c *redis.Client, k string) error {
			return c.Set(ctx, k, strings.Repeat("x", 99), 0).Err()
		},
		"newer": func(ctx context.Context, c *redis.Client, k string) error {
			return c.Set(ctx, k, "OGc\x02"+strings.Repeat("x", 99), 0).Err()
		},
		"list": func(ctx context.Context, c *redis.Client, k string) error { return c.RPush(ctx, k, "foreign").Err() },
	}
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		client := b.Client(t)
		locker := newLocker(t, client)
		for name, put := range values {
			t.Run(name, func(t *testing.T) {
				ctx, key := t.Context(), locker.StorageKey(name)
				lease := acquire(t, locker, name)
				if err := client.Del(ctx, key).Err(); err != nil {
					t.Fatal(err)
				}
				if err := put(ctx, client, key); err != nil {
					t.Fatal(err)
				}
				before := client.Dump(ctx, key).Val()

				if _, _, err := locker.TryAcquire(ctx, name); !errors.Is(err, lock.ErrForeign) {
					t.Errorf("TryAcquire: %v, want ErrForeign", err)
				}
				if err := lease.Extend(ctx, time.Minute); !errors.Is(err, lock.ErrLost) {
					t.Errorf("Extend: %v, want ErrLost", err)
				}
				if err := lease.Settle(ctx, []byte("v"), time.Hour); !errors.Is(err, lock.ErrLost) {
					t.Errorf("Settle: %v, want ErrLost", err)
				}
				if err := lease.Release(ctx); !errors.Is(err, lock.ErrLost) {
					t.Errorf("Release: %v, want ErrLost", err)
				}
				if after := client.Dump(ctx, key).Val(); after != before {
					t.Errorf("the value is now %q, want it untouched", after)
				}
			})
		}
	})
}
