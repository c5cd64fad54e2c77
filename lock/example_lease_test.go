package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
)

// A master behind Sentinel. Without MasterName, two addresses or more are a Cluster, and one is a single server.
func ExampleNew() {
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		MasterName: "payments",
		Addrs:      []string{"10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"},
	})
	defer client.Close()

	// Both services know a "user 42", and neither meets the other's.
	payments := lock.New(client, "payments-api")
	defer payments.Close(context.Background())
	shop := lock.New(client, "shop")
	defer shop.Close(context.Background())
	fmt.Println(payments.StorageKey("user 42") == shop.StorageKey("user 42"))
	// Output: false
}

// A limit on waiting is no limit on the work.
func ExampleLocker_Acquire() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "reports")
	defer locker.Close(ctx)

	limit, cancel := context.WithTimeout(ctx, 3*time.Second)
	lease, err := locker.Acquire(limit, "monthly")
	cancel()
	switch {
	case errors.Is(err, lock.ErrHeld):
		fmt.Println("somebody else is still at it")
		return
	case err != nil:
		fmt.Println("failed:", err)
		return
	}
	defer lease.Release(ctx)
	fmt.Println("still ours:", lease.Context().Err() == nil)
	// Output: still ours: true
}

// What to look for with redis-cli.
func ExampleLocker_StorageKey() {
	client, stop := newClient()
	defer stop()
	locker := lock.New(client, "orders")
	defer locker.Close(context.Background())

	fmt.Println(locker.StorageKey("order 7"))
	// Output: orders:{03f2}0fc89f8ae19394b48debd6353bb9ad3393f3bc791931519f19d176a7e5513ebc
}

// The order of a shutdown: the HTTP server first, then the Locker, the client last.
func ExampleLocker_Close() {
	client, stop := newClient()
	defer stop()
	locker := lock.New(client, "orders")

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := locker.Close(ctx); err != nil {
		fmt.Println("background work was cut off:", err)
	}
	_, err := locker.Claim(context.Background(), "order 7", nil, 0)
	fmt.Println(errors.Is(err, lock.ErrClosed))
	// Output: true
}

// What others find under a key during its life.
func ExampleClaim() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "orders")
	defer locker.Close(ctx)

	ask := func() lock.Claim {
		claim, err := locker.Claim(ctx, "order 7", []byte("placed by web-2"), 0)
		if err != nil {
			fmt.Println("failed:", err)
		}
		fmt.Printf("%s note=%q value=%q\n", claim.State, claim.Note, claim.Value)
		return claim
	}
	first := ask()
	ask()
	if err := first.Lease.Settle(ctx, []byte("invoice 31"), time.Hour); err != nil {
		fmt.Println("nobody knows:", err)
	}
	ask()
	// Output:
	// granted note="" value=""
	// held note="placed by web-2" value=""
	// settled note="" value="invoice 31"
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

// The order is placed, and Redis has restarted empty meanwhile: a retry must still find that it is placed.
func ExampleLease_Settle() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "orders")
	defer locker.Close(ctx)

	claim, err := locker.Claim(ctx, "order 7", nil, 0)
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	if err := client.FlushAll(ctx).Err(); err != nil {
		fmt.Println(err)
	}
	switch err := claim.Lease.Settle(ctx, []byte("placed"), 24*time.Hour); {
	case errors.Is(err, lock.ErrLost):
		fmt.Println("somebody else has the key: the order may be placed twice")
	case err != nil:
		fmt.Println("it is tried again in the background:", err)
	}
	retry, err := locker.Claim(ctx, "order 7", nil, 0)
	fmt.Printf("%s: %s %v\n", retry.State, retry.Value, err)
	// Output: settled: placed <nil>
}

// A receipt is written where it is stored from.
func ExampleLease_SettleAppend() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "receipts")
	defer locker.Close(ctx)

	claim, err := locker.Claim(ctx, "receipt 7", nil, 0)
	if err != nil || claim.State != lock.Granted {
		fmt.Println("not ours:", claim.State, err)
		return
	}
	amount := 1250
	err = claim.Lease.SettleAppend(ctx, len("1250 EUR"), func(b []byte) []byte {
		return append(strconv.AppendInt(b, int64(amount), 10), " EUR"...)
	}, nil, 24*time.Hour)
	if err != nil {
		fmt.Println("nobody knows:", err)
		return
	}
	claim, err = locker.Claim(ctx, "receipt 7", nil, 0)
	fmt.Printf("%s %v, %v\n", claim.Value, claim.State, err)
	// Output: 1250 EUR settled, <nil>
}

// The bank did not answer: the transfer may have happened, so that nobody may try it again at once.
func ExampleLease_Abandon() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "transfers", lock.WithTTL(time.Minute))
	defer locker.Close(ctx)

	transfer := func(context.Context) error { return context.DeadlineExceeded }
	lease, err := locker.Acquire(ctx, "transfer 9")
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	if err := transfer(lease.Context()); err != nil {
		lease.Abandon() // where Release would let a retry in
	}

	_, ok, err := locker.TryAcquire(ctx, "transfer 9")
	fmt.Println("free for a retry:", ok, err)
	// Output: free for a retry: false <nil>
}

// An export that takes longer than an hour is not to keep its key for ever.
func ExampleLease_AbandonAt() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "exports", lock.WithTTL(300*time.Millisecond))
	defer locker.Close(ctx)

	lease, ok, err := locker.TryAcquire(ctx, "yearly")
	if err != nil || !ok {
		fmt.Println("not ours:", ok, err)
		return
	}
	lease.AbandonAt(time.Now().Add(time.Millisecond)) // an hour, in earnest
	<-lease.Context().Done()
	fmt.Println(context.Cause(lease.Context()) == lock.ErrLost)
	// Output: true
}

// A fixed lease that ends soon when its holder hangs: every batch that is done asks for the time of another one.
func ExampleLease_Extend() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "invoices", lock.WithTTL(30*time.Second), lock.WithoutRenewal())
	defer locker.Close(ctx)

	lease, err := locker.Acquire(ctx, "2026-11")
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	defer lease.Release(ctx)
	for batch := range 3 {
		switch err := lease.Extend(ctx, 30*time.Second); {
		case errors.Is(err, lock.ErrLost):
			fmt.Println("somebody else may be at it: stop")
			return
		case err != nil:
			fmt.Println("the lease ends when it did before:", err)
		}
		fmt.Println("batch", batch)
	}
	// Output:
	// batch 0
	// batch 1
	// batch 2
}

// Right before an effect that must not happen twice: is there time enough for it?
func ExampleLease_Until() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "payouts")
	defer locker.Close(ctx)

	lease, err := locker.Acquire(ctx, "merchant 42")
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	defer lease.Release(ctx)

	const payoutTakes = 2 * time.Second
	if time.Until(lease.Until()) < payoutTakes {
		fmt.Println("not now: the process was paused, or Redis does not renew the lease")
		return
	}
	fmt.Println("paid out")
	// Output: paid out
}

// A key that holds a value is not taken by waiting for it.
func ExampleLocker_Acquire_settled() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "orders")
	defer locker.Close(ctx)

	claim, err := locker.Claim(ctx, "order 7", nil, 0)
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	if err := claim.Lease.Settle(ctx, []byte("placed"), time.Hour); err != nil {
		fmt.Println("nobody knows:", err)
	}
	_, err = locker.Acquire(ctx, "order 7") // answers at once, not in an hour
	fmt.Println(errors.Is(err, lock.ErrSettled))
	// Output: true
}

// Another program writes into our namespace.
func ExampleLocker_Claim_foreign() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "orders")
	defer locker.Close(ctx)

	key := locker.StorageKey("order 7")
	if err := client.Set(ctx, key, "not ours", 0).Err(); err != nil {
		fmt.Println(err)
	}
	_, err := locker.Claim(ctx, "order 7", nil, 0)
	fmt.Println(errors.Is(err, lock.ErrForeign))
	fmt.Println(client.Get(ctx, key).Val())
	// Output:
	// true
	// not ours
}

// How long others wait when a holder dies. A holder that lives may work for much longer.
func ExampleWithTTL() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	locker := lock.New(client, "reports", lock.WithTTL(30*time.Second))
	defer locker.Close(ctx)

	lease, err := locker.Acquire(ctx, "monthly")
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	defer lease.Release(ctx)
	fmt.Println(client.TTL(ctx, locker.StorageKey("monthly")).Val())
	// Output: 30s
}

// At most once an hour, however many processes have the same timer: the lease is left to run out.
func ExampleWithoutRenewal() {
	client, stop := newClient()
	defer stop()
	ctx := context.Background()
	hourly := lock.New(client, "reminders", lock.WithTTL(time.Hour), lock.WithoutRenewal())
	defer hourly.Close(ctx)

	for _, process := range []string{"web-1", "web-2"} {
		_, ok, err := hourly.TryAcquire(ctx, "overdue invoices")
		switch {
		case err != nil:
			fmt.Println("failed:", err)
		case !ok:
			fmt.Println(process, "has nothing to do")
		default:
			fmt.Println(process, "sends reminders")
		}
	}
	// Output:
	// web-1 sends reminders
	// web-2 has nothing to do
}

// A server that is reachable and silent. The client alone would wait for its ReadTimeout, 3 s, and try again.
func ExampleWithOpTimeout() {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer silent.Close()
	client := redis.NewClient(&redis.Options{
		Addr:                  silent.Addr().String(),
		ContextTimeoutEnabled: true, // or else Close waits for the ReadTimeout
	})
	defer client.Close()
	ctx := context.Background()
	locker := lock.New(client, "orders", lock.WithOpTimeout(20*time.Millisecond))
	defer locker.Close(ctx)

	_, err = locker.Claim(ctx, "order 7", nil, 0)
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
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
