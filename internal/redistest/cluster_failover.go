package redistest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Failover makes a replica of a key's owner take its place, by CLUSTER FAILOVER
// with the given option, and returns it when every node that answers takes it
// for the owner:
//
//   - none: the two agree, and no write is lost;
//   - "FORCE": the old master is not asked, but the others are. It may be dead.
//     What it has not replicated is lost;
//   - "TAKEOVER": nobody is asked. Most masters may be dead.
//
// Let no node be elected twice within 4 seconds, by this or after a Kill, which
// only "TAKEOVER" survives: for the first two it counts its old votes, and
// takes over in an old epoch, which nobody believes; then it does not try.
func (c *Cluster) Failover(t testing.TB, key string, option ...string) *Server {
	t.Helper()
	slot, from := c.slot(t, key), c.Owner(t, key)
	command := []any{"CLUSTER", "FAILOVER"}
	for _, o := range option {
		command = append(command, o)
	}
	var to *Server
	var again time.Time
	err := await(func(ctx context.Context) (err error) {
		if time.Now().After(again) {
			if to, err = c.replicaOf(ctx, from); err != nil {
				return err
			}
			err = to.glance(ctx, func(ctx context.Context, client *redis.Client) error {
				return client.Do(ctx, command...).Err()
			})
			if err != nil {
				return err
			}
			again = time.Now().Add(6 * time.Second) // it gives up after 5
		}
		return c.isOwner(ctx, slot, to)
	})
	if err != nil {
		t.Fatalf("redistest: CLUSTER FAILOVER %v from %s: %v", option, from.addr, err)
	}
	return to
}

// WaitForFailover returns the new owner of a key's slot when every node that
// answers names it instead of from: for a test that has killed or paused
// that.
func (c *Cluster) WaitForFailover(t testing.TB, key string, from *Server) *Server {
	t.Helper()
	slot := c.slot(t, key)
	var to *Server
	err := await(func(ctx context.Context) (err error) {
		to, err = c.agree(ctx, slot)
		if err == nil && to == from {
			return errors.New("it still owns the slot")
		}
		return err
	})
	if err != nil {
		t.Fatalf("redistest: failover from %s: %v", from.addr, err)
	}
	return to
}

// replicaOf returns a replica of the master that answers.
func (c *Cluster) replicaOf(ctx context.Context, master *Server) (*Server, error) {
	for s, v := range c.look(ctx) {
		if self := v.self(); self.has("slave") && self.master == c.id(master) {
			return s, nil
		}
	}
	return nil, errors.New("no replica of it answers")
}
