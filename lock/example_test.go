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

// Work under the lease's context stops by itself when the lease is lost.
func ExampleLease_Context() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "payouts", lock.WithTTL(300*time.Millisecond))
	defer locker.Close(ctx)

	lease, err := locker.Acquire(ctx, "merchant 42")
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	defer lease.Release(ctx)
	if err := client.FlushAll(ctx).Err(); err != nil { // Redis loses the key
		fmt.Println(err)
	}

	<-lease.Context().Done() // as a query or a request with this context would be
	fmt.Println(errors.Is(context.Cause(lease.Context()), lock.ErrLost))
	// Output: true
}

// A server acquires a lock, and a worker does the work: another process, on another machine.
func ExampleLocker_Resume() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	server, worker := lock.New(client, "reports"), lock.New(client, "reports")
	defer server.Close(ctx)
	defer worker.Close(ctx)

	lease, ok, err := server.TryAcquire(ctx, "monthly")
	if err != nil || !ok {
		fmt.Println("not acquired:", err)
		return
	}
	token := lease.Token() // sent to the worker, in a message for example
	lease.Abandon()        // the server stops renewing it, and relies on it no more

	resumed, err := worker.Resume(ctx, "monthly", token)
	if err != nil {
		fmt.Println("not resumed:", err) // ErrLost: it is over, or another worker has it
		return
	}
	fmt.Println("the worker has it:", resumed.Err() == nil)
	_, err = worker.Resume(ctx, "monthly", token)
	fmt.Println("again:", err)
	fmt.Println("the server's:", lease.Release(ctx))
	fmt.Println("the worker's:", resumed.Release(ctx))
	// Output:
	// the worker has it: true
	// again: lock: the lease is lost
	// the server's: lock: the lease is lost
	// the worker's: <nil>
}

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

// An operator has looked at a key whose holder died, found out that its work was never done, and lets it be done again.
func ExampleLocker_Forget() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "payouts")
	defer locker.Close(ctx)
	claim, err := locker.Claim(ctx, "payout 7", []byte("payout"), 24*time.Hour)
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	claim.Lease.Abandon()                       // as if its process had died
	client.Expire(ctx, claim.Key, 23*time.Hour) // an hour ago

	info, err := locker.Inspect(ctx, claim.Key)
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	fmt.Println("it is", info.State)
	switch err := locker.Forget(ctx, claim.Key, info.Token, false); {
	case errors.Is(err, lock.ErrChanged):
		fmt.Println("it has changed: look again")
	case errors.Is(err, lock.ErrLive):
		fmt.Println("somebody is at work")
	case err != nil:
		fmt.Println("nobody knows:", err)
	default:
		fmt.Println("it is free")
	}
	// Output:
	// it is abandoned
	// it is free
}
