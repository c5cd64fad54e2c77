package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/child"
)

// Cluster is a Redis Cluster with a node timeout of one second. A replica replaces a killed or paused master about two
// seconds later, if a majority of the masters is left: with three masters, one may fail.
type Cluster struct {
	servers []*Server
	ids     []string // node IDs of the servers, which survive a Restart
}

// slots is the number of slots in a cluster. Each belongs to one master.
const slots = 16384

// StartCluster starts a cluster whose masters share the slots evenly, and returns when every node agrees and the
// replicas are in sync. Share it among subtests: a master answers CLUSTERDOWN for two seconds after a start or a
// Restart.
//
// Each node gets args. When a master is down, the others still serve their own slots: cluster-require-full-coverage is
// off. Replicas do not move to other masters: cluster-migration-barrier is out of reach.
func StartCluster(t testing.TB, masters, replicasPerMaster int, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{}
	for range masters * (1 + replicasPerMaster) {
		c.servers = append(c.servers, newServer(t, append([]string{
			"--cluster-enabled", "yes",
			"--cluster-announce-ip", "127.0.0.1",
			"--cluster-node-timeout", "1000",
			"--cluster-require-full-coverage", "no",
			"--cluster-migration-barrier", "1000",
		}, args...)...))
	}
	start(t, c.servers...)
	c.meet(t, masters)
	await(t, "the masters agree", func(ctx context.Context) error { return c.isWhole(ctx, 0) })
	for i, s := range c.servers[masters:] {
		master := i % masters
		await(t, "CLUSTER REPLICATE", func(ctx context.Context) error {
			return s.query(ctx, func(ctx context.Context, client *redis.Client) error {
				return client.ClusterReplicate(ctx, c.ids[master]).Err()
			})
		})
		c.servers[master].WaitForReplicas(t, s)
	}
	for _, master := range c.servers[:masters] {
		// FLUSHALL makes the replication offset positive. Redis 6.0 takes an offset of 0 for an unknown one, and its
		// CLUSTER FAILOVER then never ends.
		master.FlushAll(t)
	}
	await(t, "the cluster agrees", func(ctx context.Context) error { return c.isWhole(ctx, replicasPerMaster) })
	return c
}

// meet assigns slots to the masters and an epoch to each node, and introduces every node to every other, since gossip
// would take seconds.
func (c *Cluster) meet(t testing.TB, masters int) {
	t.Helper()
	for i, s := range c.servers {
		s.do(t, "CLUSTER MEET", func(ctx context.Context, client *redis.Client) error {
			id, err := client.ClusterMyID(ctx).Result()
			if err != nil {
				return err
			}
			c.ids = append(c.ids, id)
			err = client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err()
			if i < masters {
				err = errors.Join(err, client.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err())
			}
			for _, other := range c.servers[:i] {
				port, bus := fmt.Sprint(other.run.Port), fmt.Sprint(other.run.Port+child.BusOffset)
				err = errors.Join(err, client.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", port, bus).Err())
			}
			return err
		})
	}
}

// isWhole returns nil if every node serves, knows every other node, and knows an owner for every slot, with that number
// of replicas.
func (c *Cluster) isWhole(ctx context.Context, replicas int) error {
	for _, s := range c.servers {
		owned := 0
		for _, r := range c.view(ctx, s) {
			if len(r.Nodes) == 1+replicas {
				owned += r.End - r.Start + 1
			}
		}
		if owned != slots {
			return fmt.Errorf("%s knows an owner with %d replicas of %d slots", s.addr, replicas, owned)
		}
		err := s.query(ctx, func(ctx context.Context, client *redis.Client) error {
			info, err := client.ClusterInfo(ctx).Result()
			known := fmt.Sprintf("cluster_known_nodes:%d\r\n", len(c.servers))
			if err == nil && (!strings.Contains(info, "cluster_state:ok\r\n") || !strings.Contains(info, known)) {
				return fmt.Errorf("CLUSTER INFO of %s: %q", s.addr, info)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// view returns the cluster as a node sees it, or nil if it does not answer.
func (c *Cluster) view(ctx context.Context, s *Server) (view []redis.ClusterSlot) {
	_ = s.query(ctx, func(ctx context.Context, client *redis.Client) (err error) {
		view, err = client.ClusterSlots(ctx).Result() //lint:ignore SA1019 Redis before 7.0 does not know CLUSTER SHARDS
		return err
	})
	return view
}

// Servers returns every node: the initial masters, then the first replica of each, and so on.
func (c *Cluster) Servers() []*Server { return slices.Clone(c.servers) }

// Client returns a cluster client that knows the address of every node. It has go-redis's default options, changed by
// opts in order. The end of the test closes it.
func (c *Cluster) Client(t testing.TB, opts ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	o := &redis.ClusterOptions{}
	for _, s := range c.servers {
		o.Addrs = append(o.Addrs, s.addr)
	}
	for _, opt := range opts {
		opt(o)
	}
	client := redis.NewClusterClient(o)
	closeAfter(t, "the cluster client", client)
	return client
}

// Owner returns the master that owns the slot of a key, up or down, when every node that answers names it.
func (c *Cluster) Owner(t testing.TB, key string) *Server {
	t.Helper()
	return c.ownerThat(t, key, "owns", func(*Server) bool { return true })
}

// WaitForFailover is for a test that has killed or paused from. It returns the new owner of a key's slot when every
// node that answers names that one.
func (c *Cluster) WaitForFailover(t testing.TB, key string, from *Server) *Server {
	t.Helper()
	return c.ownerThat(t, key, "succeeds "+from.addr, func(s *Server) bool { return s != from })
}

// ownerThat waits until every node that answers, among them the owner, names the same owner of a slot, and is is true
// for that one.
func (c *Cluster) ownerThat(t testing.TB, key, what string, is func(*Server) bool) (owner *Server) {
	t.Helper()
	slot := c.slot(t, key)
	await(t, fmt.Sprintf("the node that %s slot %d", what, slot), func(ctx context.Context) error {
		owner = nil
		for _, s := range c.servers {
			for _, r := range c.view(ctx, s) {
				if slot < r.Start || slot > r.End {
					continue
				}
				named := c.servers[slices.Index(c.ids, r.Nodes[0].ID)]
				if owner != nil && named != owner || !is(named) {
					return fmt.Errorf("%s names %s", s.addr, named.addr)
				}
				owner = named
			}
		}
		if owner == nil {
			return errors.New("no node answers")
		}
		return nil
	})
	return owner
}

// slot asks the first server for the slot of a key. No test kills that one.
func (c *Cluster) slot(t testing.TB, key string) (slot int) {
	t.Helper()
	c.servers[0].do(t, "CLUSTER KEYSLOT", func(ctx context.Context, client *redis.Client) error {
		n, err := client.ClusterKeySlot(ctx, key).Result()
		slot = int(n)
		return err
	})
	return slot
}

// Failover promotes the replica of a key's owner by CLUSTER FAILOVER: the old master cooperates, and no write is lost.
// It returns the replica when every node that answers names it as the owner.
func (c *Cluster) Failover(t testing.TB, key string) *Server {
	t.Helper()
	slot, from := c.slot(t, key), c.Owner(t, key)
	var again time.Time
	await(t, "CLUSTER FAILOVER from "+from.addr, func(ctx context.Context) error {
		for _, r := range c.view(ctx, from) {
			if slot < r.Start || slot > r.End {
				continue
			}
			if owner := c.servers[slices.Index(c.ids, r.Nodes[0].ID)]; owner != from {
				return nil
			}
			if time.Now().Before(again) || len(r.Nodes) < 2 {
				break
			}
			again = time.Now().Add(6 * time.Second) // the replica gives up after 5 s
			replica := c.servers[slices.Index(c.ids, r.Nodes[1].ID)]
			return replica.query(ctx, func(ctx context.Context, client *redis.Client) error {
				return errors.Join(client.ClusterFailover(ctx).Err(), errors.New("asked for"))
			})
		}
		return errors.New("not yet")
	})
	return c.WaitForFailover(t, key, from)
}

// BeginMove starts the move of a key's slot to another master, and moves its keys there, with their TTLs. The old
// master still owns the slot, but answers ASK to a command on a key that it does not have. So new keys are created on
// the other.
func (c *Cluster) BeginMove(t testing.TB, key string, to *Server) {
	t.Helper()
	slot, from := c.slot(t, key), c.Owner(t, key)
	c.set(t, to, slot, "IMPORTING", from)
	c.set(t, from, slot, "MIGRATING", to)
	from.do(t, "MIGRATE", func(ctx context.Context, client *redis.Client) error {
		for {
			keys, err := client.ClusterGetKeysInSlot(ctx, slot, 100).Result()
			if err != nil || len(keys) == 0 {
				return err
			}
			migrate := []any{"MIGRATE", "127.0.0.1", to.run.Port, "", 0, patience.Milliseconds(), "KEYS"}
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
	c.set(t, to, slot, "NODE", to) // first, which gives it the highest epoch
	for _, s := range c.servers {  // the replicas learn it from their masters
		if info, err := s.replication(context.Background()); s != to && err == nil && info["role"] == "master" {
			c.set(t, s, slot, "NODE", to)
		}
	}
	c.ownerThat(t, key, "has been given", func(s *Server) bool { return s == to })
}

// set sends CLUSTER SETSLOT to a master.
func (c *Cluster) set(t testing.TB, s *Server, slot int, what string, node *Server) {
	t.Helper()
	s.do(t, "CLUSTER SETSLOT "+what, func(ctx context.Context, client *redis.Client) error {
		return client.Do(ctx, "CLUSTER", "SETSLOT", slot, what, c.ids[slices.Index(c.servers, node)]).Err()
	})
}
