package redistest

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
)

// BeginMove starts the move of a key's slot to another master, and moves its keys there, with their TTLs. The old
// master still owns the slot, but answers ASK to a command on a key that it does not have. So new keys are created on
// the other.
func (c *Cluster) BeginMove(t testing.TB, key string, to *Server) {
	t.Helper()
	slot, from := c.slot(t, key), c.Owner(t, key)
	to.do(t, "CLUSTER SETSLOT IMPORTING", func(ctx context.Context, client *redis.Client) error {
		return client.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", c.id(from)).Err()
	})
	from.do(t, "CLUSTER SETSLOT MIGRATING", func(ctx context.Context, client *redis.Client) error {
		return client.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", c.id(to)).Err()
	})
	from.do(t, "MIGRATE", func(ctx context.Context, client *redis.Client) error {
		for {
			keys, err := client.ClusterGetKeysInSlot(ctx, slot, 100).Result()
			if err != nil || len(keys) == 0 {
				return err
			}
			migrate := []any{"MIGRATE", "127.0.0.1", to.port, "", 0, patience.Milliseconds(), "KEYS"}
			for _, key := range keys {
				migrate = append(migrate, key)
			}
			if err := client.Do(ctx, migrate...).Err(); err != nil {
				return err
			}
		}
	})
}

// EndMove makes the master to which BeginMove moved the keys the owner of the slot. It returns when every node that
// answers agrees. The old owner then answers MOVED.
func (c *Cluster) EndMove(t testing.TB, key string, to *Server) {
	t.Helper()
	slot := c.slot(t, key)
	give := func(s *Server) {
		s.do(t, "CLUSTER SETSLOT NODE", func(ctx context.Context, client *redis.Client) error {
			return client.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", c.id(to)).Err()
		})
	}
	give(to)                                          // first, which gives it the highest epoch
	for s, v := range c.views(context.Background()) { // the replicas learn it from their masters
		if s != to && v.self().has("master") {
			give(s)
		}
	}
	err := await(func(ctx context.Context) error { return c.isOwner(ctx, slot, to) })
	if err != nil {
		t.Fatalf("redistest: moving slot %d to %s: %v", slot, to.addr, err)
	}
}
