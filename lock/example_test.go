package lock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
)

// newClient stands for the client of your Redis.
func newClient() (client *redis.Client, stop func()) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	client = redis.NewClient(&redis.Options{Addr: server.Addr()})
	return client, func() {
		_ = client.Close()
		server.Close()
	}
}

func Example() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()

	locker := lock.New(client, "reports", lock.WithTTL(5*time.Second))
	defer locker.Close(ctx)

	lease, err := locker.Acquire(ctx, "monthly")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx)

	// Work under lease.Context: it ends when the lease does.
	fmt.Println("working:", lease.Context().Err() == nil)
	// Output: working: true
}

// The lease ran out while the work went on, and another holder has the key: both may have run.
func ExampleLease_Release_lost() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "reports")
	defer locker.Close(ctx)

	lease, err := locker.Acquire(ctx, "monthly")
	if err != nil {
		fmt.Println(err)
		return
	}
	client.Set(ctx, locker.StorageKey("monthly"), "another holder", 0)
	err = lease.Release(ctx)
	fmt.Println(errors.Is(err, lock.ErrLost))
	// Output: true
}

func ExampleLocker_TryAcquire() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "reports")
	defer locker.Close(ctx)

	for range 2 {
		lease, ok, err := locker.TryAcquire(ctx, "monthly")
		switch {
		case err != nil:
			fmt.Println("failed:", err)
		case !ok:
			fmt.Println("somebody is at it already")
		default:
			defer lease.Release(ctx)
			fmt.Println("ours")
		}
	}
	// Output:
	// ours
	// somebody is at it already
}

func ExampleLocker_Claim() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "orders")
	defer locker.Close(ctx)

	order := func() {
		claim, err := locker.Claim(ctx, "order 7", []byte("a note for callers that find the claim"), 0)
		switch {
		case err != nil:
			fmt.Println("failed:", err)
		case claim.State == lock.Settled:
			fmt.Printf("done before: %s\n", claim.Value)
		case claim.State == lock.Held, claim.State == lock.Abandoned:
			fmt.Printf("under way: %s\n", claim.Note)
		case claim.State == lock.Granted:
			fmt.Println("doing it")
			if err := claim.Lease.Settle(ctx, []byte("order 7 is placed"), time.Hour); err != nil {
				fmt.Println("nobody knows:", err)
			}
		}
	}
	order()
	order()
	// Output:
	// doing it
	// done before: order 7 is placed
}

// A status page shows what an order's key holds, and begins nothing.
func ExampleLocker_Look() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "orders")
	defer locker.Close(ctx)

	show := func() {
		switch claim, err := locker.Look(ctx, "order 7"); {
		case err != nil:
			fmt.Println("failed:", err)
		case claim.State == lock.Settled:
			fmt.Printf("settled: %s\n", claim.Value)
		default:
			fmt.Println(claim.State)
		}
	}
	show()
	claim, err := locker.Claim(ctx, "order 7", nil, 0)
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	show()
	if err := claim.Lease.Settle(ctx, []byte("it is placed"), time.Hour); err != nil {
		fmt.Println("nobody knows:", err)
	}
	show()
	// Output:
	// free
	// held
	// settled: it is placed
}

func ExampleLease_Release() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "reports")
	defer locker.Close(ctx)

	lease, _, err := locker.TryAcquire(ctx, "monthly")
	if err != nil {
		fmt.Println(err)
		return
	}
	key := locker.StorageKey("monthly")
	if err := locker.Forget(ctx, key, lease.Token(), lock.EvenIfLive()); err != nil { // an operator steps in,
		fmt.Println(err)
	}
	if _, _, err := locker.TryAcquire(ctx, "monthly"); err != nil { // and somebody else is quick
		fmt.Println(err)
	}
	fmt.Println("lost:", errors.Is(lease.Release(ctx), lock.ErrLost))
	// Output: lost: true
}

func ExampleWithRetry() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "reports", lock.WithRetry(lock.Retry{Min: time.Millisecond, Attempts: 3}))
	defer locker.Close(ctx)

	lease, err := locker.Acquire(ctx, "monthly")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx)

	_, err = locker.Acquire(ctx, "monthly")
	fmt.Println(errors.Is(err, lock.ErrHeld))
	// Output: true
}
