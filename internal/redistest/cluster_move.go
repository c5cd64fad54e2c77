package redistest

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
)

// BeginMove moves the keys of a key's slot to another master, with their TTLs,
// and leaves the slot between the two: the old owner is still its owner, and
// answers ASK to every command about a key that it no longer has. New keys of
// the slot are made on the new one.
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

// EndMove gives the slot of a key to the master that BeginMove moved its keys
// to, and returns when every node that answers says so: the old owner answers
// MOVED.
func (c *Cluster) EndMove(t testing.TB, key string, to *Server) {
	t.Helper()
	slot := c.slot(t, key)
	give := func(s *Server) {
		s.do(t, "CLUSTER SETSLOT NODE", func(ctx context.Context, client *redis.Client) error {
			return client.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", c.id(to)).Err()
		})
	}
	give(to)                                         // first: it is what makes the claim the latest
	for s, v := range c.look(context.Background()) { // replicas hear of it
		if s != to && v.self().has("master") {
			give(s)
		}
	}
	err := await(func(ctx context.Context) error { return c.isOwner(ctx, slot, to) })
	if err != nil {
		t.Fatalf("redistest: moving slot %d to %s: %v", slot, to.addr, err)
	}
}
