package lock

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// routes knows with which others a command may travel: with those to the same node, as long as all of them, or none,
// are to be acknowledged by replicas.
type routes struct {
	locker  *Locker
	cluster *redis.ClusterClient // nil if there is one node at a time

	one lanes // to that node; of a Cluster: until it is known who has which slot, and for slots that nobody has

	loaded atomic.Bool // the client knows who has which slot
	mu     sync.Mutex
	byAddr map[string]*lanes
}

// lanes are the two batchers to a node.
type lanes struct{ plain, durable batcher }

func (n *lanes) init(l *Locker) {
	n.plain.init(l)
	n.durable.init(l)
}

func (r *routes) init(l *Locker) {
	r.locker = l
	r.one.init(l)
	if cluster, ok := l.client.(*redis.ClusterClient); ok {
		r.cluster, r.byAddr = cluster, map[string]*lanes{}
	}
}

// to returns the batcher for a command.
func (r *routes) to(c *command) *batcher {
	n := r.lanes(c.trip.key.text)
	if c.durable {
		return &n.durable
	}
	return &n.plain
}

func (r *routes) lanes(key string) *lanes {
	if !r.loaded.Load() {
		return &r.one
	}
	node, err := r.cluster.MasterForKey(context.Background(), key) // which asks nobody any more
	if err != nil {
		return &r.one
	}
	addr := node.Options().Addr
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := r.byAddr[addr]
	if !ok {
		n = new(lanes)
		n.init(r.locker)
		r.byAddr[addr] = n
	}
	return n
}

// load lets the client find out who has which slot, which may take a while.
func (r *routes) load(ctx context.Context, key string) {
	if r.cluster == nil || r.loaded.Load() {
		return
	}
	if _, err := r.cluster.MasterForKey(ctx, key); err == nil {
		r.loaded.Store(true)
	}
}
