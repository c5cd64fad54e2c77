package lock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/lock"
)

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
