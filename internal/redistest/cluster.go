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

// Cluster is a Redis Cluster with a node timeout of one second. A replica replaces a killed or paused master about two
// seconds later, if a majority of the masters is left: with three masters, one may fail.
type Cluster struct {
	servers []*Server
	ids     map[string]*Server // by node ID, which survives a Restart
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
		// FLUSHALL makes the replication offset positive. Redis 6.0 takes an offset of 0 for an unknown one, and its
		// CLUSTER FAILOVER then never ends.
		master.FlushAll(t)
	}
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

// replicate makes s a replica of the master, and returns when s is in sync. The two must have met.
func (c *Cluster) replicate(s, master *Server) error {
	err := await(func(ctx context.Context) error {
		return s.query(ctx, func(ctx context.Context, client *redis.Client) error {
			return client.ClusterReplicate(ctx, c.id(master)).Err()
		})
	})
	if err != nil {
		return err
	}
	return await(func(ctx context.Context) error { return inSync(ctx, master, s) })
}

// isWhole returns nil if every node knows every other node, and an owner for every slot.
func (c *Cluster) isWhole(ctx context.Context) error {
	views := c.views(ctx)
	if len(views) != len(c.servers) {
		return fmt.Errorf("%d nodes of %d answer", len(views), len(c.servers))
	}
	for s, v := range views {
		owned := 0
		for _, n := range v {
			if c.ids[n.id] == nil || n.has("handshake") || n.has("noaddr") || n.link != "connected" {
				return fmt.Errorf("%s has not met %+v yet", s.addr, n)
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

// isUp returns nil if the cluster is whole, every node serves, and every node knows that number of replicas.
func (c *Cluster) isUp(ctx context.Context, replicas int) error {
	if err := c.isWhole(ctx); err != nil {
		return err
	}
	for s, v := range c.views(ctx) {
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

// serves returns nil if the node reports cluster_state:ok.
func (s *Server) serves(ctx context.Context) error {
	return s.query(ctx, func(ctx context.Context, client *redis.Client) error {
		info, err := client.ClusterInfo(ctx).Result()
		if err == nil && !strings.Contains(info, "cluster_state:ok\r\n") {
			return fmt.Errorf("CLUSTER INFO of %s: %q", s.addr, info)
		}
		return err
	})
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

// Owner returns the master that owns the slot of a key now, up or down: the owner with the highest epoch in any view.
func (c *Cluster) Owner(t testing.TB, key string) *Server {
	t.Helper()
	slot := c.slot(t, key)
	var owner *Server
	err := await(func(ctx context.Context) (err error) {
		owner, err = c.latestOwner(c.views(ctx), slot)
		return err
	})
	if err != nil {
		t.Fatalf("redistest: the owner of slot %d: %v", slot, err)
	}
	return owner
}

// latestOwner returns the owner of the slot with the highest epoch in the views.
func (c *Cluster) latestOwner(views map[*Server]view, slot int) (*Server, error) {
	var latest node
	for _, v := range views {
		if n, ok := v.owner(slot); ok && (latest.id == "" || n.epoch > latest.epoch) {
			latest = n
		}
	}
	if owner := c.ids[latest.id]; owner != nil {
		return owner, nil
	}
	return nil, fmt.Errorf("none of the %d nodes that answer knows an owner", len(views))
}

// agreedOwner returns the owner of a slot if it serves, every node that answers names it, and every such node knows
// which others are masters. A node that takes a replica for a master would not vote for it.
func (c *Cluster) agreedOwner(ctx context.Context, slot int) (*Server, error) {
	views := c.views(ctx)
	owner, err := c.latestOwner(views, slot)
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
				return nil, fmt.Errorf("%s does not know the new role of %s yet", s.addr, c.ids[n.id].addr)
			}
		}
	}
	return owner, owner.serves(ctx)
}

// isOwner returns nil if the nodes agree that s owns the slot.
func (c *Cluster) isOwner(ctx context.Context, slot int, s *Server) error {
	owner, err := c.agreedOwner(ctx, slot)
	if err == nil && owner != s {
		return errors.New("the slot still belongs to " + owner.addr)
	}
	return err
}

// slot returns the slot of a key. It asks one node after the other until one answers.
func (c *Cluster) slot(t testing.TB, key string) (slot int) {
	t.Helper()
	err := await(func(ctx context.Context) (err error) {
		for _, s := range c.servers {
			err = s.query(ctx, func(ctx context.Context, client *redis.Client) error {
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
