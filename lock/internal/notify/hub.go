// Package notify tells who waits for a key that the key was released or settled: Redis publishes that on a channel of the
// key's name.
//
// Nothing relies on it: waiters look by themselves as well. So a failure here only means that the next look comes by a
// timer.
package notify

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/background"
)

// Hub has one connection to each node on which a key is waited for, opened when it is first needed, and closed when it has
// not been for a while.
//
// On a Cluster a message goes to the node of its key alone (sharded pub/sub, SPUBLISH and SSUBSCRIBE, of Redis 7.0). An
// older Cluster has none, and timers do it all.
type Hub struct {
	client redis.UniversalClient
	group  *background.Group

	mu    sync.Mutex
	conns map[string]*conn // guarded by mu; by address, "" if the client knows only one
}

// NewHub returns a Hub that has no connection yet.
func NewHub(client redis.UniversalClient, group *background.Group) *Hub {
	return &Hub{client: client, group: group, conns: map[string]*conn{}}
}

// Subscription is one wish to hear of a key. There is at most one for a key at a time.
type Subscription struct {
	hub  *Hub
	key  string
	wake chan struct{} // holds a token when there may be something to see

	heard     atomic.Bool // the server has confirmed that it will tell of the key
	following atomic.Bool // the node to hear is being looked up
	closed    bool        // guarded by Hub.mu
}

// Subscribe returns a Subscription to messages about key. The first ones may be missed: see Follow.
func (h *Hub) Subscribe(key string) *Subscription {
	s := &Subscription{hub: h, key: key, wake: make(chan struct{}, 1)}
	s.Follow()
	return s
}

// C receives when there may be something to see: a message has come, or some may have been missed.
func (s *Subscription) C() <-chan struct{} { return s.wake }

func (s *Subscription) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Follow subscribes again if messages do not arrive (any more), for example because the key has moved to another node. It
// does not wait for that. It is called after each look.
func (s *Subscription) Follow() {
	if s.heard.Load() || s.following.Swap(true) {
		return
	}
	h := s.hub
	cluster, sharded := h.client.(*redis.ClusterClient)
	if !sharded {
		h.attach(s, "", h.client.Subscribe)
		s.following.Store(false)
		return
	}
	h.group.Go(func() { // it may have to ask the Cluster
		if node, err := cluster.MasterForKey(h.group.Context(), s.key); err == nil {
			h.attach(s, node.Options().Addr, node.SSubscribe)
		}
		s.following.Store(false)
	})
}

// Close ends the Subscription.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.closed = true
	for _, c := range s.hub.conns {
		c.drop(s)
	}
}

// attach lets the node at addr send its messages about the key of s, and no other node any more.
func (h *Hub) attach(s *Subscription, addr string, open func(context.Context, ...string) *redis.PubSub) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.closed {
		return
	}
	c, ok := h.conns[addr]
	if !ok {
		c = newConn(h, addr, open(h.group.Context()))
		h.conns[addr] = c
	}
	for _, other := range h.conns {
		if other != c {
			other.drop(s)
		}
	}
	c.add(s)
}
