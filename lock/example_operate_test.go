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

// abandoned stands for a process that died in the middle of its work an hour ago. It returns the storage key, which the
// process has logged.
func abandoned(locker *lock.Locker, server *miniredis.Miniredis, key string) (storageKey string) {
	ctx := context.Background()
	claim, err := locker.Claim(ctx, key, []byte("payout"), 24*time.Hour)
	if err != nil {
		panic(err)
	}
	claim.Lease.Abandon()
	server.FastForward(time.Hour)
	return claim.Key
}

// newServer stands for your Redis.
func newServer() (*miniredis.Miniredis, *redis.Client) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	return server, redis.NewClient(&redis.Options{Addr: server.Addr()})
}

// An operator has looked at a key, found out that its work was never done, and lets it be done again.
func ExampleLocker_Forget() {
	server, client := newServer()
	defer server.Close()
	defer client.Close()
	ctx := context.Background()
	locker := lock.New(client, "payouts")
	defer locker.Close(ctx)
	storageKey := abandoned(locker, server, "payout 7")

	info, err := locker.Inspect(ctx, storageKey)
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	fmt.Println("it is", info.State)

	switch err := locker.Forget(ctx, storageKey, info.Token); {
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

// An operator has found out that the work was done.
func ExampleLocker_SettleAbandoned() {
	server, client := newServer()
	defer server.Close()
	defer client.Close()
	ctx := context.Background()
	locker := lock.New(client, "payouts")
	defer locker.Close(ctx)
	storageKey := abandoned(locker, server, "payout 7")

	info, err := locker.Inspect(ctx, storageKey)
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	err = locker.SettleAbandoned(ctx, storageKey, info.Token, func(note []byte) ([]byte, error) {
		return append(note, ": paid"...), nil
	}, 24*time.Hour)
	if err != nil {
		fmt.Println("failed:", err)
	}
	claim, err := locker.Claim(ctx, "payout 7", nil, 0)
	fmt.Println(claim.State, string(claim.Value), err)
	// Output: settled payout: paid <nil>
}

// All keys whose work was begun and not ended, at a pace that the server does not notice.
func ExampleLocker_Scan() {
	server, client := newServer()
	defer server.Close()
	defer client.Close()
	ctx := context.Background()
	locker := lock.New(client, "payouts")
	defer locker.Close(ctx)
	abandoned(locker, server, "payout 7")

	pace := time.NewTicker(10 * time.Millisecond) // 100 keys each: 10,000 a second
	defer pace.Stop()
	for found, err := range locker.Scan(ctx, 100) {
		if err != nil {
			fmt.Println("failed:", err)
			return
		}
		for _, info := range found.Infos {
			if info.State == lock.Abandoned {
				fmt.Println(info.Key, info.State)
			}
		}
		<-pace.C
	}
	// Output: payouts:{290c}a43065beb94174f18c2774127949e802b5db609eaa504db86bcae1f38564c511 abandoned
}

// A lock says who holds it. An operator asks by the lock's name.
func ExampleNewOwnerContext() {
	server, client := newServer()
	defer server.Close()
	defer client.Close()
	ctx := context.Background()
	locker := lock.New(client, "reports")
	defer locker.Close(ctx)

	// In main. A real program has its host from os.Hostname.
	ctx = lock.NewOwnerContext(ctx, "batch-7, pid 4711: nightly report")
	lease, err := locker.Acquire(ctx, "nightly")
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	defer lease.Release(ctx)

	info, err := locker.Inspect(ctx, locker.StorageKey("nightly"))
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	fmt.Println(info.State, "by", info.Owner)
	fmt.Println("for less than a minute:", time.Since(info.ClaimedAt) < time.Minute)
	// Output:
	// held by batch-7, pid 4711: nightly report
	// for less than a minute: true
}

// A process that is deployed anew leaves no lock behind.
func ExampleWithReleaseOnClose() {
	server, client := newServer()
	defer server.Close()
	defer client.Close()
	ctx := context.Background()
	locker := lock.New(client, "reports", lock.WithReleaseOnClose())
	lease, err := locker.Acquire(ctx, "nightly")
	if err != nil {
		fmt.Println("failed:", err)
		return
	}

	// On SIGTERM, once the work has ended.
	if err := locker.Close(ctx); err != nil {
		fmt.Println("not all is released:", err)
	}
	fmt.Println("the lease:", context.Cause(lease.Context()))

	next := lock.New(client, "reports")
	defer next.Close(ctx)
	_, ok, err := next.TryAcquire(ctx, "nightly")
	fmt.Println("the next process has it:", ok, err)
	// Output:
	// the lease: context canceled
	// the next process has it: true <nil>
}
