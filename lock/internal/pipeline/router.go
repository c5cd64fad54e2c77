package pipeline

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// router finds the queue for a command: commands to one node travel together, if replicas have to acknowledge all or none
// of them.
type router struct {
	pipeline *Pipeline
	cluster  *redis.ClusterClient // nil if there is one node at a time

	one node // that one; of a Cluster: until it is known who has which slot, and for slots that nobody has

	loaded atomic.Bool // the client knows who has which slot

	mu     sync.Mutex
	byAddr map[string]*node // guarded by mu
}

// node has the two queues to a node.
type node struct{ plain, durable queue }

func (n *node) init(p *Pipeline) {
	n.plain.init(p)
	n.durable.init(p)
}

func (r *router) init(p *Pipeline) {
	r.pipeline = p
	r.one.init(p)
	if cluster, ok := p.client.(*redis.ClusterClient); ok {
		r.cluster, r.byAddr = cluster, map[string]*node{}
	}
}

// queue returns the queue for a command.
func (r *router) queue(c *command) *queue {
	n := r.node(c.call.Key)
	if c.durable {
		return &n.durable
	}
	return &n.plain
}

func (r *router) node(key string) *node {
	if !r.loaded.Load() {
		return &r.one
	}
	master, err := r.cluster.MasterForKey(context.Background(), key) // asks nobody any more
	if err != nil {
		return &r.one
	}
	addr := master.Options().Addr
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := r.byAddr[addr]
	if !ok {
		n = new(node)
		n.init(r.pipeline)
		r.byAddr[addr] = n
	}
	return n
}

// load lets the client find out who has which slot, which may take a while.
func (r *router) load(ctx context.Context, key string) {
	if r.cluster == nil || r.loaded.Load() {
		return
	}
	if _, err := r.cluster.MasterForKey(ctx, key); err == nil {
		r.loaded.Store(true)
	}
}
