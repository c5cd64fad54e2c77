package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Cluster is a Redis Cluster. Its nodes give each other a second to answer: a
// master that is killed or paused is replaced by a replica of its own about two
// seconds later, if it has one and if most masters are left, so one of three.
type Cluster struct {
	servers []*Server
	ids     map[string]*Server // by node ID, which a node keeps over a Restart
}

// What a master owns in a cluster.
const slots = 16384

// StartCluster runs a cluster whose masters share the slots evenly, and returns
// when every node agrees, and replicas are in sync. That takes two seconds at
// least: for so long after its start a master accepts nothing and says
// CLUSTERDOWN, and so it does after a Restart. Share a cluster among subtests.
//
// The args are those of every node. A node that is down leaves its slots
// without a master and does not stop the others, and replicas stay with
// their masters: cluster-require-full-coverage is off, and no master has
// cluster-migration-barrier replicas to spare.
func StartCluster(t testing.TB, masters, replicasPerMaster int, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{ids: map[string]*Server{}}
	for range masters * (1 + replicasPerMaster) {
		s := newServer(t, append([]string{
			"--cluster-enabled", "yes",
			"--cluster-announce-ip", "127.0.0.1",
			"--cluster-node-timeout", "1000",
			"--cluster-require-full-coverage", "no",
			"--cluster-migration-barrier", "1000",
		}, args...)...)
		s.bus = true
		c.servers = append(c.servers, s)
	}
	start(t, c.servers...)
	c.meet(t, masters)
	err := await(c.isWhole)
	for i := 0; i < len(c.servers)-masters && err == nil; i++ {
		err = c.replicate(c.servers[masters+i], c.servers[i%masters])
	}
	if err == nil {
		err = await(func(ctx context.Context) error { return c.isUp(ctx, masters*replicasPerMaster) })
	}
	if err != nil {
		t.Fatalf("redistest: starting a cluster: %v", err)
	}
	for _, master := range c.servers[:masters] {
		// A replication offset of 0 means an unknown one to Redis 6.0, whose
		// CLUSTER FAILOVER then never ends. FLUSHALL is replicated.
		master.FlushAll(t)
	}
	return c
}

// meet gives the masters their slots and epochs, and introduces each node to
// each other one: the gossip would take seconds.
func (c *Cluster) meet(t testing.TB, masters int) {
	t.Helper()
	for i, s := range c.servers {
		s.do(t, "CLUSTER MEET", func(ctx context.Context, client *redis.Client) error {
			id, err := client.ClusterMyID(ctx).Result()
			if err != nil {
				return err
			}
			c.ids[id] = s
			err = client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err()
			if i < masters {
				err = errors.Join(err, client.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err())
			}
			for _, other := range c.servers[:i] {
				err = errors.Join(err, client.ClusterMeet(ctx, "127.0.0.1", fmt.Sprint(other.port)).Err())
			}
			return err
		})
	}
}

// replicate makes s a replica of the master, which it has met, and returns when
// it is in sync.
func (c *Cluster) replicate(s, master *Server) error {
	err := await(func(ctx context.Context) error {
		return s.glance(ctx, func(ctx context.Context, client *redis.Client) error {
			return client.ClusterReplicate(ctx, c.id(master)).Err()
		})
	})
	if err != nil {
		return err
	}
	return await(func(ctx context.Context) error { return inSync(ctx, master, s) })
}

// isWhole returns nil if every node knows every other one, and an owner of
// every slot.
func (c *Cluster) isWhole(ctx context.Context) error {
	views := c.look(ctx)
	if len(views) != len(c.servers) {
		return fmt.Errorf("%d nodes of %d answer", len(views), len(c.servers))
	}
	for s, v := range views {
		owned := 0
		for _, n := range v {
			if c.ids[n.id] == nil || n.has("handshake") || n.has("noaddr") || n.link != "connected" {
				return fmt.Errorf("%s has yet to meet %+v", s.addr, n)
			}
			for _, r := range n.slots {
				owned += r.last - r.first + 1
			}
		}
		if len(v) != len(c.servers) || owned != slots {
			return fmt.Errorf("%s knows %d nodes and %d slots", s.addr, len(v), owned)
		}
	}
	return nil
}

// isUp returns nil if the cluster is whole, every node serves, and each knows
// how many replicas there are.
func (c *Cluster) isUp(ctx context.Context, replicas int) error {
	if err := c.isWhole(ctx); err != nil {
		return err
	}
	for s, v := range c.look(ctx) {
		known := 0
		for _, n := range v {
			if n.has("slave") {
				known++
			}
		}
		if known != replicas {
			return fmt.Errorf("%s knows %d replicas of %d", s.addr, known, replicas)
		}
		if err := s.serves(ctx); err != nil {
			return err
		}
	}
	return nil
}

// serves returns nil if a node takes the cluster for fit to be used.
func (s *Server) serves(ctx context.Context) error {
	return s.glance(ctx, func(ctx context.Context, client *redis.Client) error {
		info, err := client.ClusterInfo(ctx).Result()
		if err == nil && !strings.Contains(info, "cluster_state:ok\r\n") {
			return fmt.Errorf("%s says: %q", s.addr, info)
		}
		return err
	})
}

// Servers returns every node: first the masters of the start, then the replicas,
// the first of each master, the second of each, and so on.
func (c *Cluster) Servers() []*Server { return slices.Clone(c.servers) }

// Client returns a cluster client that begins with all nodes, and is closed
// when the test ends. Its options are go-redis's own defaults, changed by opts
// in order.
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

// Owner returns the master that has the slot of a key now, up or not: the one
// with the latest claim that any node knows of.
func (c *Cluster) Owner(t testing.TB, key string) *Server {
	t.Helper()
	slot := c.slot(t, key)
	var owner *Server
	err := await(func(ctx context.Context) (err error) {
		owner, err = c.latest(c.look(ctx), slot)
		return err
	})
	if err != nil {
		t.Fatalf("redistest: the owner of slot %d: %v", slot, err)
	}
	return owner
}

// latest returns who has the latest claim to the slot.
func (c *Cluster) latest(views map[*Server]view, slot int) (*Server, error) {
	var latest node
	for _, v := range views {
		if n, ok := v.owner(slot); ok && (latest.id == "" || n.epoch > latest.epoch) {
			latest = n
		}
	}
	if owner := c.ids[latest.id]; owner != nil {
		return owner, nil
	}
	return nil, fmt.Errorf("%d nodes answer, and none knows one", len(views))
}

// agree returns the owner of a slot if that serves, and every node that answers
// names the same one and knows which of the others are masters: one that does
// not would not vote for a replica that it still takes for a master.
func (c *Cluster) agree(ctx context.Context, slot int) (*Server, error) {
	views := c.look(ctx)
	owner, err := c.latest(views, slot)
	if err != nil {
		return nil, err
	}
	for s, v := range views {
		if n, _ := v.owner(slot); c.ids[n.id] != owner {
			return nil, fmt.Errorf("%s does not name %s yet, but %q", s.addr, owner.addr, n.id)
		}
		for _, n := range v {
			other, answers := views[c.ids[n.id]]
			if answers && n.has("master") != other.self().has("master") {
				return nil, fmt.Errorf("%s does not know yet what has become of %s", s.addr, c.ids[n.id].addr)
			}
		}
	}
	return owner, owner.serves(ctx)
}

// isOwner returns nil if they agree on s.
func (c *Cluster) isOwner(ctx context.Context, slot int, s *Server) error {
	owner, err := c.agree(ctx, slot)
	if err == nil && owner != s {
		return errors.New("the slot is still " + owner.addr + "'s")
	}
	return err
}

// slot asks the nodes which slot a key is in: any of them can tell.
func (c *Cluster) slot(t testing.TB, key string) (slot int) {
	t.Helper()
	err := await(func(ctx context.Context) (err error) {
		for _, s := range c.servers {
			err = s.glance(ctx, func(ctx context.Context, client *redis.Client) error {
				n, err := client.ClusterKeySlot(ctx, key).Result()
				slot = int(n)
				return err
			})
			if err == nil {
				return nil
			}
		}
		return err
	})
	if err != nil {
		t.Fatalf("redistest: the slot of %q: %v", key, err)
	}
	return slot
}

func (c *Cluster) id(s *Server) string {
	for id, other := range c.ids {
		if other == s {
			return id
		}
	}
	return ""
}
