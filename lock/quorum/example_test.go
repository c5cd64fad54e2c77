package quorum_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/quorum"
)

func ExampleNew() {
	var masters []redis.UniversalClient // independent of each other: no replicas, no Cluster
	for range 3 {
		server := miniredis.NewMiniRedis()
		if err := server.Start(); err != nil {
			panic(err)
		}
		defer server.Close()
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer client.Close()
		masters = append(masters, client)
	}
	ctx := context.Background()
	q := quorum.New(masters, "reports")
	defer q.Close(ctx)

	lease, ok, err := q.TryAcquire(ctx, "monthly")
	if err != nil || !ok {
		fmt.Println(ok, err)
		return
	}
	_, again, err := q.TryAcquire(ctx, "monthly")
	fmt.Println("while it is held:", again, err)

	if err := lease.Release(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: while it is held: false <nil>
}
