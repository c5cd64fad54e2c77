package lock_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock"
)

func ExampleNewQuorum() {
	var masters []redis.UniversalClient // independent of each other: no replicas, no Cluster
	for range 3 {
		client, stop := newClient()
		defer stop()
		masters = append(masters, client)
	}
	ctx := context.Background()
	quorum := lock.NewQuorum(masters, "reports")
	defer quorum.Close(ctx)

	lease, ok, err := quorum.TryAcquire(ctx, "monthly")
	if err != nil || !ok {
		fmt.Println(ok, err)
		return
	}
	_, again, err := quorum.TryAcquire(ctx, "monthly")
	fmt.Println("while it is held:", again, err)

	if err := lease.Release(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: while it is held: false <nil>
}
