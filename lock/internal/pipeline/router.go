package pipeline

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// router finds the queue of a command, by the node that owns the slot of its key. Its methods may be called
// concurrently.
type router struct {
	pipeline *Pipeline
	cluster  *redis.ClusterClient // nil unless the client is a Cluster's

	one    node        // the only node; for a Cluster: used until the slots are known, and for slots that no node has
	loaded atomic.Bool // a Cluster's client knows the slots; only becomes true

	mu     sync.Mutex
	byAddr map[string]*node // guarded by mu; only grows; nil unless the client is a Cluster's
}

// node holds the queues to one node. A batch is durable as a whole, so durable commands have a separate queue.
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

// queue returns the queue of a command.
func (r *router) queue(c *command) *queue {
	n := r.node(c.call.Key)
	if c.durable {
		return &n.durable
	}
	return &n.plain
}

// node returns the node that owns the slot of key.
func (r *router) node(key string) *node {
	if !r.loaded.Load() {
		return &r.one
	}
	master, err := r.cluster.MasterForKey(context.Background(), key) // sends nothing: the slots are known
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

// nodes returns all nodes that have had a command.
func (r *router) nodes() []*node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.AppendSeq([]*node{&r.one}, maps.Values(r.byAddr))
}

// load makes a Cluster's client ask for the slots, unless it knows them. That may take as long as ctx allows. So exec
// calls load: node runs in the caller's goroutine, and could not be canceled.
func (r *router) load(ctx context.Context, key string) {
	if r.cluster == nil || r.loaded.Load() {
		return
	}
	if _, err := r.cluster.MasterForKey(ctx, key); err == nil {
		r.loaded.Store(true)
	}
}
