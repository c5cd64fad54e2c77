package lock_test

import (
	"context"
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
