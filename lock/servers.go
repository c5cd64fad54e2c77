package lock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/background"
)

// servers are the servers of a deployment. Check and Scan send each of them commands that are not about one key.
type servers struct {
	client  redis.UniversalClient // nil for None
	group   *background.Group
	timeout time.Duration // for one operation
}

// withTimeout returns the result of f, and returns within the time for one operation even if go-redis ignores the
// context.
func withTimeout[T any](ctx context.Context, s *servers, f func(context.Context) (T, error)) (none T, _ error) {
	var value T
	var err error
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, background.TimeoutError(s.timeout))
	defer cancel() // not in the goroutine: there ctx.Done could win the select over done
	done := make(chan struct{})
	s.group.Go(func() {
		defer close(done)
		value, err = f(ctx)
	})
	select {
	case <-done:
		return value, err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// masters returns a client for each master of a Cluster, keyed by "address: ", as errors print it. Without a Cluster it
// returns the Locker's client, keyed by "".
func (s *servers) masters(ctx context.Context) (map[string]redis.Cmdable, error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return map[string]redis.Cmdable{"": s.client}, nil
	}
	return withTimeout(ctx, s, func(ctx context.Context) (map[string]redis.Cmdable, error) {
		var mu sync.Mutex
		nodes := map[string]redis.Cmdable{} // guarded by mu: ForEachMaster calls concurrently
		err := cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			nodes[node.Options().Addr+": "] = node
			return nil
		})
		return nodes, err
	})
}
