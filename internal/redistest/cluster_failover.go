package redistest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Failover promotes a replica of a key's owner by CLUSTER FAILOVER with the given option. It returns the replica when
// every node that answers names it as the owner.
//
//   - Without an option, the old master cooperates, and no write is lost.
//   - With "FORCE", only the other masters vote. The old one may be dead. Writes that it has not replicated are lost.
//   - With "TAKEOVER", no master votes. Most may be dead.
//
// A node must not be elected twice within 4 seconds, by Failover or after a Kill, except with "TAKEOVER". It would
// count its old votes and take over in an old epoch, which the others reject. Then it does not try again.
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
			err = to.query(ctx, func(ctx context.Context, client *redis.Client) error {
				return client.Do(ctx, command...).Err()
			})
			if err != nil {
				return err
			}
			again = time.Now().Add(6 * time.Second) // the replica gives up after 5 s
		}
		return c.isOwner(ctx, slot, to)
	})
	if err != nil {
		t.Fatalf("redistest: CLUSTER FAILOVER %v from %s: %v", option, from.addr, err)
	}
	return to
}

// WaitForFailover is for a test that has killed or paused from. It returns the new owner of a key's slot when every
// node that answers names that one.
func (c *Cluster) WaitForFailover(t testing.TB, key string, from *Server) *Server {
	t.Helper()
	slot := c.slot(t, key)
	var to *Server
	err := await(func(ctx context.Context) (err error) {
		to, err = c.agreedOwner(ctx, slot)
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

// replicaOf returns a replica of the master, one that answers.
func (c *Cluster) replicaOf(ctx context.Context, master *Server) (*Server, error) {
	for s, v := range c.views(ctx) {
		if self := v.self(); self.has("slave") && self.master == c.id(master) {
			return s, nil
		}
	}
	return nil, errors.New("no replica answers")
}
