package main

import (
	"context"
	"testing"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// The embedded server frees an abandoned key when its lease has expired, and not earlier.
func TestEmbeddedRedisExpires(t *testing.T) {
	t.Parallel()
	db, err := embeddedRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.close(); err != nil {
			t.Error(err)
		}
	})
	locker := lock.New(db.client, "test", lock.WithTTL(2*time.Second), lock.WithOpTimeout(patience))
	t.Cleanup(func() { _ = locker.Close(context.Background()) })

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	first, err := locker.Acquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	first.Abandon()
	until := first.Until()
	second, err := locker.Acquire(ctx, "k") // waits
	if err != nil {
		t.Fatalf("after the lease: %v", err)
	}
	if early := time.Until(until); early > 0 {
		t.Errorf("the key was free %v before the lease ran out", early)
	}
	if err := second.Release(ctx); err != nil {
		t.Error(err)
	}
	if n, err := db.client.DBSize(ctx).Result(); err != nil || n != 0 {
		t.Errorf("keys left: %d, %v; want none", n, err)
	}
}
