package lock

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// channel is how a Locker hears that a key was released or settled: by one connection to each node on which it waits
// for a key, opened when it is first needed, and closed when it has not been for a while. Nothing relies on it: whoever
// waits looks by itself as well. So a failure here only means that the next look comes by its timer, and that one
// tells.
//
// On a Cluster a message goes to the node of its key alone (sharded pub/sub, SPUBLISH and SSUBSCRIBE, of Redis 7.0). An
// older Cluster has none, and timers do it all.
type channel struct {
	locker  *Locker
	publish any // the command by which the scripts do it

	mu    sync.Mutex
	nodes map[string]*subscription // by address; "" if the client knows only one
}

func (c *channel) init(l *Locker) {
	c.locker, c.publish, c.nodes = l, "publish", map[string]*subscription{}
	if _, ok := l.client.(*redis.ClusterClient); ok {
		c.publish = "spublish"
	}
}

// follow lets messages wake q, unless they do. It does not wait for that.
func (c *channel) follow(q *queue) {
	if q.heard.Load() || q.following.Swap(true) {
		return
	}
	cluster, sharded := c.locker.client.(*redis.ClusterClient)
	if !sharded {
		c.attach(q, "", c.locker.client.Subscribe)
		q.following.Store(false)
		return
	}
	c.locker.work.run(func() { // it may have to ask the Cluster
		if node, err := cluster.MasterForKey(c.locker.work.ctx, q.key.text); err == nil {
			c.attach(q, node.Options().Addr, node.SSubscribe)
		}
		q.following.Store(false)
	})
}

// attach lets the node at addr send its messages about q's key, and no other node any more.
func (c *channel) attach(q *queue, addr string, open func(context.Context, ...string) *redis.PubSub) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.left {
		return
	}
	s, ok := c.nodes[addr]
	if !ok {
		s = newSubscription(c, addr, open(c.locker.work.ctx))
		c.nodes[addr] = s
	}
	for _, other := range c.nodes {
		if other != s {
			other.drop(q)
		}
	}
	s.add(q)
}

// leave ends what follow has begun.
func (c *channel) leave(q *queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q.left = true
	for _, s := range c.nodes {
		s.drop(q)
	}
}
