// Package notify wakes the waiters of a key when the key is released or settled: the scripts of package store then
// publish a message on the channel with the key's name. Package lock calls it.
//
// Waiters also poll the key, so nothing relies on a message. A failure here only delays waiters until their next poll.
//
// Hub.mu guards the connections and their subscriptions. It is never held during network I/O.
package notify

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/background"
)

// Hub has one connection to each node that has a key with waiters. It opens the connection for the first Subscription,
// and closes it a few seconds after the last one has ended. Its methods may be called concurrently.
//
// On a Cluster a message only goes to the node of its key (sharded pub/sub: SPUBLISH and SSUBSCRIBE, Redis 7.0). On an
// older Cluster waiters only poll.
type Hub struct {
	group *background.Group
	find  func(ctx context.Context, key string) (node, error) // the node of a key; may ask a server

	mu    sync.Mutex
	conns map[string]*conn // guarded by mu; by the node's address
}

// node is where messages about some keys go.
type node struct {
	addr string // empty unless the client is a Cluster's
	open func(context.Context) pubSub
}

// pubSub is a *redis.PubSub.
type pubSub interface {
	Subscribe(ctx context.Context, channels ...string) error
	Unsubscribe(ctx context.Context, channels ...string) error
	SSubscribe(ctx context.Context, channels ...string) error
	SUnsubscribe(ctx context.Context, channels ...string) error
	ReceiveTimeout(ctx context.Context, d time.Duration) (any, error)
	Ping(ctx context.Context, payload ...string) error
	Close() error
}

// NewHub returns a Hub that has no connection yet.
func NewHub(client redis.UniversalClient, group *background.Group) *Hub {
	open := func(ctx context.Context) pubSub { return client.Subscribe(ctx) }
	find := func(context.Context, string) (node, error) { return node{open: open}, nil }
	if cluster, ok := client.(*redis.ClusterClient); ok {
		find = func(ctx context.Context, key string) (node, error) {
			master, err := cluster.MasterForKey(ctx, key)
			if err != nil {
				return node{}, err
			}
			open := func(ctx context.Context) pubSub { return master.SSubscribe(ctx) }
			return node{addr: master.Options().Addr, open: open}, nil
		}
	}
	return &Hub{group: group, find: find, conns: map[string]*conn{}}
}

// Subscriptions returns how many channels are subscribed, or are about to be.
func (h *Hub) Subscriptions() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns {
		n += len(c.subscribers)
	}
	return n
}

// Subscription receives the messages about one key. A key has at most one at a time.
type Subscription struct {
	hub  *Hub
	key  string
	wake chan struct{} // holds one token: a message has arrived, or may have been missed

	subscribed atomic.Bool // the node has confirmed the subscription
	following  atomic.Bool // a Follow is looking up the node of the key
	closed     bool        // guarded by Hub.mu
}

// Subscribe returns a Subscription to the messages about key. It misses messages until the node has confirmed it. C
// receives when the node does.
func (h *Hub) Subscribe(key string) *Subscription {
	s := &Subscription{hub: h, key: key, wake: make(chan struct{}, 1)}
	s.Follow()
	return s
}

// C receives when a message has arrived, or when messages may have been missed. The caller then polls the key.
func (s *Subscription) C() <-chan struct{} { return s.wake }

// signal makes C receive.
func (s *Subscription) signal() { background.Signal(s.wake) }

// Follow subscribes again, in the background, unless the Subscription is confirmed: the key may have moved to another
// node. The caller calls Follow after each poll.
func (s *Subscription) Follow() {
	if s.subscribed.Load() || s.following.Swap(true) {
		return
	}
	s.hub.group.Go(func() {
		if n, err := s.hub.find(s.hub.group.Context(), s.key); err == nil {
			s.hub.attach(s, n)
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
		c.unsubscribe(s)
	}
}

// attach subscribes s on a node, and unsubscribes it from every other one.
func (h *Hub) attach(s *Subscription, n node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.closed {
		return
	}
	c, ok := h.conns[n.addr]
	if !ok {
		c = newConn(h, n)
		h.conns[n.addr] = c
	}
	for _, other := range h.conns {
		if other != c {
			other.unsubscribe(s)
		}
	}
	c.subscribe(s)
}
