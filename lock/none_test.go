package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

func TestNoneGrantsNothing(t *testing.T) {
	t.Parallel()
	locker, ctx := lock.None("test"), t.Context()
	key := locker.StorageKey("k")
	settle := func([]byte) ([]byte, error) { panic("there is no note") }
	for _, want := range []error{lock.ErrNoRedis, lock.ErrClosed} {
		for what, call := range map[string]func() error{
			"TryAcquire": func() error { _, _, err := locker.TryAcquire(ctx, "k"); return err },
			"Acquire":    func() error { _, err := locker.Acquire(ctx, "k"); return err },
			"Claim":      func() error { _, err := locker.Claim(ctx, "k", nil, 0); return err },
			"Resume":     func() error { _, err := locker.Resume(ctx, "k", lockToken); return err },
			"Wait":       func() error { _, err := locker.Wait(ctx, "k"); return err },
			"Inspect":    func() error { _, err := locker.Inspect(ctx, key); return err },
			"Forget":     func() error { return locker.Forget(ctx, key, lockToken, false) },
			"SettleAbandoned": func() error {
				return locker.SettleAbandoned(ctx, key, lockToken, settle, time.Hour)
			},
			"Scan": func() error {
				for _, err := range locker.Scan(ctx, 10) {
					return err
				}
				return nil
			},
		} {
			if err := call(); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		wantErr(t, "Check", locker.Check(ctx), nil)
		if got := locker.Stats(); got != (lock.Stats{}) {
			t.Errorf("Stats: %+v, want none", got)
		}
		closeWithin(t, locker)
	}
}

func TestNoneNamesKeysAndDrains(t *testing.T) {
	t.Parallel()
	redis, none := newLocker(t, redistest.Mini(t).Client(t)), lock.None("test")
	if got, want := none.StorageKey("k"), redis.StorageKey("k"); got != want {
		t.Errorf("StorageKey: %q, want %q as with Redis", got, want)
	}
	if none.TTL() != redis.TTL() || none.OpTimeout() == 0 || !none.IsNone() || redis.IsNone() {
		t.Errorf("TTL %v, OpTimeout %v, IsNone %v and %v", none.TTL(), none.OpTimeout(), none.IsNone(), redis.IsNone())
	}
	drained := false
	none.Go(func(ctx context.Context) {
		<-ctx.Done()
		drained = true
	})
	closeWithin(t, none)
	if !drained {
		t.Error("Close has not waited for background work")
	}
}

func ExampleNone() {
	locker := lock.None("payments")
	defer locker.Close(context.Background())

	_, err := locker.Claim(context.Background(), "order 7", nil, 0)
	fmt.Println(errors.Is(err, lock.ErrNoRedis))
	// Output: true
}
