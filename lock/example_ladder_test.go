package lock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/lock"
)

// The second caller waits for the value that the first one stores, and does not run the operation again.
func ExampleLocker_Wait() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "reports")
	defer locker.Close(ctx)

	first, err := locker.Claim(ctx, "monthly", nil, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() {
		_ = first.Lease.Settle(ctx, []byte("42 orders"), time.Hour)
	}()

	limit, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	switch claim, err := locker.Wait(limit, "monthly"); {
	case errors.Is(err, lock.ErrHeld):
		fmt.Println("it is still under way")
	case err != nil:
		fmt.Println("failed:", err)
	case claim.State == lock.Settled:
		fmt.Printf("%s\n", claim.Value)
	default:
		fmt.Println("the first one has left nothing:", claim.State)
	}
	// Output: 42 orders
}

// At start-up, findings are worth a line in the log at least. This embedded server does not say what it does when it is
// full.
func ExampleLocker_Check() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "payments")
	defer locker.Close(ctx)

	err := locker.Check(ctx)
	switch {
	case errors.Is(err, lock.ErrEviction):
		fmt.Println("every eviction may become a second payment")
	case errors.Is(err, lock.ErrEvictionUnknown):
		fmt.Println("make sure that maxmemory-policy is noeviction")
	}
	// Output: make sure that maxmemory-policy is noeviction
}

// A function that locks calls another one that locks the same key.
func ExampleNewContext() {
	client, stop := newClient()
	defer stop()
	locker := lock.New(client, "accounts")
	defer locker.Close(context.Background())

	withdraw := func(ctx context.Context) error {
		lease, ok, err := locker.TryAcquire(ctx, "account 7")
		if err != nil || !ok {
			return fmt.Errorf("not ours: %w", err)
		}
		defer lease.Release(ctx) // a handle of its own: the outer one still holds the key
		fmt.Println("withdrawn")
		return nil
	}

	ctx := context.Background()
	lease, err := locker.Acquire(ctx, "account 7")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx)
	if err := withdraw(lock.NewContext(ctx, lease)); err != nil {
		fmt.Println(err)
	}
	// Output: withdrawn
}

// A file that knows the greatest number it was written with refuses a writer that was paused for too long.
func ExampleWithFencing() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "files", lock.WithFencing())
	defer locker.Close(ctx)

	var greatest int64
	write := func(fence int64) bool {
		if fence < greatest {
			return false
		}
		greatest = fence
		return true
	}

	paused, _, err := locker.TryAcquire(ctx, "ledger")
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = client.Del(ctx, locker.StorageKey("ledger")).Err() // as if its lease had run out
	next, _, err := locker.TryAcquire(ctx, "ledger")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(write(next.Fence()), write(paused.Fence()))
	// Output: true false
}

// Without a replica that has it, nothing counts as granted.
func ExampleWithReplicas() {
	client, stop := newClient() // a single server
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "payments", lock.WithReplicas(1, 100*time.Millisecond))
	defer locker.Close(ctx)

	_, ok, err := locker.TryAcquire(ctx, "k")
	fmt.Println(ok, errors.Is(err, lock.ErrNotReplicated))
	// Output: false true
}
