package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// fault: TTL of 0, below 1 ms, negative
func TestWrongConfigurationPanics(t *testing.T) {
	t.Parallel()
	client := redistest.Mini(t).Client(t)
	ring := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() { _ = ring.Close() })

	for want, f := range map[string]func(){
		"lock.New: client":    func() { lock.New(nil, "n") },
		"lock.New: namespace": func() { lock.New(client, "") },
		"must be a text":      func() { lock.New(client, "a{b}") },
		"Ring":                func() { lock.New(ring, "n") },
		"option 2 is nil":     func() { lock.New(client, "n", lock.WithFencing(), nil) },
		"WithTTL: 0s":         func() { lock.WithTTL(0) },
		"WithTTL: 999µs":      func() { lock.WithTTL(999 * time.Microsecond) },
		"WithTTL: -1s":        func() { lock.WithTTL(-time.Second) },
		"WithTTL: 87600h0":    func() { lock.WithTTL(lock.MaxHold + 1) },
		"WithOpTimeout":       func() { lock.WithOpTimeout(0) },
		"WithOpTimeout: 2562": func() { lock.WithOpTimeout(math.MaxInt64) },
		"WithRetry":           func() { lock.WithRetry(lock.Retry{Min: -1}) },
		"Min <= Max":          func() { lock.WithRetry(lock.Retry{Min: 2, Max: 1}) },
		"Attempts >= 0":       func() { lock.WithRetry(lock.Retry{Attempts: -1}) },
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

func TestTryAcquire(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		ctx := t.Context()
		ann, bob := newLocker(t, b.Client(t)), newLocker(t, b.Client(t))

		lease := acquire(t, ann, "k")
		if _, ok, err := bob.TryAcquire(ctx, "k"); ok || err != nil {
			t.Errorf("held: %v, %v, want false, nil", ok, err)
		}
		if _, ok, err := bob.TryAcquire(ctx, "other"); !ok || err != nil {
			t.Errorf("another key: %v, %v, want true, nil", ok, err)
		}
		if err := lease.Release(ctx); err != nil {
			t.Fatal(err)
		}
		lease = acquire(t, bob, "k")
		if err := lease.Settle(ctx, []byte("v"), time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := ann.TryAcquire(ctx, "k"); ok || !errors.Is(err, lock.ErrSettled) {
			t.Errorf("settled: %v, %v, want false, ErrSettled", ok, err)
		}
	})
}

func TestAcquire(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		locker := newLocker(t, b.Client(t), lock.WithRetry(lock.Retry{Min: time.Millisecond, Max: 5 * time.Millisecond}))
		lease := acquire(t, locker, "k")

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := locker.Acquire(ctx, "k")
		if !errors.Is(err, lock.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait that is over: %v, want ErrHeld and DeadlineExceeded", err)
		}

		patient := newLocker(t, b.Client(t), lock.WithRetry(lock.Retry{Min: time.Millisecond, Attempts: 3}))
		if _, err = patient.Acquire(t.Context(), "k"); !errors.Is(err, lock.ErrHeld) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("spent attempts: %v, want ErrHeld alone", err)
		}

		acquired := make(chan error, 1)
		go func() {
			lease, err := locker.Acquire(t.Context(), "k")
			if err == nil {
				err = lease.Release(t.Context())
			}
			acquired <- err
		}()
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-acquired; err != nil {
			t.Errorf("Acquire of a key that is released: %v", err)
		}
	})
}

func TestClaim(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		ctx := t.Context()
		locker := newLocker(t, b.Client(t))
		note, value := []byte("note\x00\xff"), []byte("value\x00\xff\r\n")

		claim, err := locker.Claim(ctx, "k", note, 0)
		if err != nil || claim.State != lock.Granted {
			t.Fatalf("first: %v, %v, want granted", claim.State, err)
		}
		lease := claim.Lease
		claim, err = locker.Claim(ctx, "k", []byte("another"), 0)
		if err != nil || claim.State != lock.Held || string(claim.Note) != string(note) {
			t.Errorf("second: %v, %q, %v, want held and the holder's note", claim.State, claim.Note, err)
		}
		if err := lease.Settle(ctx, value, time.Hour); err != nil {
			t.Fatal(err)
		}
		claim, err = locker.Claim(ctx, "k", note, 0)
		if err != nil || claim.State != lock.Settled || string(claim.Value) != string(value) {
			t.Errorf("third: %v, %q, %v, want settled and the value", claim.State, claim.Value, err)
		}
		b.Elapse(t, time.Hour)
		if claim, err = locker.Claim(ctx, "k", note, 0); err != nil || claim.State != lock.Granted {
			t.Errorf("after its time: %v, %v, want granted", claim.State, err)
		}
	})
}

func TestClaimIsFreeAgainWhenItsHolderDied(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		dead := lock.New(b.Client(t), "test", lock.WithOpTimeout(20*time.Second), lock.WithoutRenewal())
		if _, ok, err := dead.TryAcquire(t.Context(), "k"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		b.Elapse(t, 10*time.Second)
		acquire(t, newLocker(t, b.Client(t)), "k")
	})
}

func TestServerOlderThan7(t *testing.T) {
	t.Parallel()
	old := startOldServer(t)
	locker := newLocker(t, redistest.NewClient(t, old))
	ctx := t.Context()

	lease := acquire(t, locker, "k")
	claim, err := locker.Claim(ctx, "k", nil, 0)
	if err != nil || claim.State != lock.Held {
		t.Errorf("while held: %v, %v, want held", claim.State, err)
	}
	if err := lease.Settle(ctx, []byte("v"), time.Hour); err != nil {
		t.Fatal(err)
	}
	claim, err = locker.Claim(ctx, "k", nil, 0)
	if err != nil || claim.State != lock.Settled || string(claim.Value) != "v" {
		t.Errorf("when settled: %v, %q, %v, want settled and the value", claim.State, claim.Value, err)
	}
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

func TestForgetALease(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		ctx := t.Context()
		locker := newLocker(t, b.Client(t))
		if err := forget(ctx, locker, "absent"); err != nil {
			t.Errorf("absent: %v", err)
		}
		first := acquire(t, locker, "k")
		if err := forget(ctx, locker, "k"); err != nil {
			t.Fatal(err)
		}
		second := acquire(t, locker, "k")
		if err := first.Release(ctx); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Release of the forgotten lease: %v, want ErrLost", err)
		}
		if err := second.Release(ctx); err != nil {
			t.Errorf("Release of its successor: %v", err)
		}
	})
}

// A Locker that is never closed leaves no goroutine behind: synctest would fail.
func TestGoroutinesEndByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		locker := lock.New(b.client, "test")
		for range 3 {
			lease := acquire(t, locker, "k")
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(150 * time.Millisecond)
		}
		time.Sleep(time.Second)
	})
}
