package notify

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

const (
	quietLimit = 3 * time.Second // listen sends a PING after this time without a message
	retryPause = time.Second     // the longest pause after a connection has broken, or a SUBSCRIBE was refused
)

// conn is a pub/sub connection of a Hub to one node. It has two goroutines: listen receives messages; update subscribes
// and unsubscribes, which may wait for go-redis to connect.
type conn struct {
	hub     *Hub
	addr    string
	pubsub  pubSub
	changed chan struct{}   // holds one token: there may be changes
	closing context.Context // done when close was called or the Group was closed
	close   context.CancelFunc
	pausing atomic.Bool // a goroutine of subscribeAgain pauses

	// guarded by Hub.mu
	subscribers map[string]*Subscription // by key, which is also the name of the channel
	changes     map[string]bool          // by key: whether it is to be subscribed (true) or unsubscribed
}

// newConn returns a connection whose goroutines run until it is closed or retired.
func newConn(h *Hub, n node) *conn {
	pubsub := n.open(h.group.Context())
	c := &conn{
		hub: h, addr: n.addr, pubsub: pubsub, changed: make(chan struct{}, 1),
		subscribers: map[string]*Subscription{}, changes: map[string]bool{},
	}
	c.closing, c.close = context.WithCancel(h.group.Context())
	context.AfterFunc(c.closing, func() { _ = pubsub.Close() })
	h.group.Go(c.listen)
	h.group.Go(c.update)
	return c
}

// subscribe subscribes s on this connection, if it is not subscribed yet. The caller holds Hub.mu.
func (c *conn) subscribe(s *Subscription) {
	if c.subscribers[s.key] != s {
		c.subscribers[s.key] = s
		c.change(s.key, true)
	}
}

// unsubscribe ends the subscription of s on this connection, if there is one. The caller holds Hub.mu.
func (c *conn) unsubscribe(s *Subscription) {
	if c.subscribers[s.key] == s { // not a later Subscription to the same key
		delete(c.subscribers, s.key)
		c.change(s.key, false)
	}
}

// change makes update subscribe or unsubscribe a key. The caller holds Hub.mu.
func (c *conn) change(key string, subscribe bool) {
	c.changes[key] = subscribe
	background.Signal(c.changed)
}

// takeChanges returns the changes, and forgets them.
func (c *conn) takeChanges() map[string]bool {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	changes := c.changes
	c.changes = map[string]bool{}
	return changes
}

// update sends SUBSCRIBE and UNSUBSCRIBE until the connection is closed.
func (c *conn) update() {
	for {
		select {
		case <-c.changed:
		case <-c.closing.Done():
			return
		}
		subscribe, unsubscribe := c.pubsub.Subscribe, c.pubsub.Unsubscribe
		if c.addr != "" {
			subscribe, unsubscribe = c.pubsub.SSubscribe, c.pubsub.SUnsubscribe
		}
		for key, isWanted := range c.takeChanges() { // one by one: a node refuses a command about several slots
			send := unsubscribe
			if isWanted {
				send = subscribe
			}
			_ = send(c.closing, key) // listen gets the error too
		}
	}
}

// listen receives messages until the connection has no subscribers, or the node does not answer a PING. If the network
// connection breaks, go-redis connects and subscribes again at the next receive.
func (c *conn) listen() {
	defer c.end()
	for pinged := false; ; {
		message, err := c.pubsub.ReceiveTimeout(c.closing, quietLimit)
		switch {
		case err == nil:
			pinged = false
			c.receive(message)
		case rediserr.IsReply(err): // refused: the key has moved, an ACL, a full server (8.6), a Cluster older than 7.0
			c.subscribeAgain()
		case rediserr.IsTimeout(err):
			if pinged || c.retire() { // the node did not answer, or has no subscribers
				return
			}
			if c.pubsub.Ping(c.closing) != nil {
				return
			}
			pinged = true
		case errors.Is(err, redis.ErrClosed):
			return
		default:
			c.wakeSubscribed() // messages may be missed from now on
			if c.retire() || background.Pause(c.closing, background.Jitter(retryPause)) != nil {
				return
			}
		}
	}
}

// receive wakes the subscriber that a message of go-redis is for: a message about its key, or that its subscription was
// confirmed or has ended, so that messages may have been missed. A subscription ends when the slot has moved, or when an
// earlier subscriber to the same key was closed: Follow subscribes again.
func (c *conn) receive(message any) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	switch m := message.(type) {
	case *redis.Message:
		if s, ok := c.subscribers[m.Channel]; ok {
			s.signal()
		}
	case *redis.Subscription:
		if s, ok := c.subscribers[m.Channel]; ok {
			confirmed := m.Kind == "subscribe" || m.Kind == "ssubscribe"
			if !confirmed {
				delete(c.subscribers, s.key)
			}
			s.subscribed.Store(confirmed)
			s.signal()
		}
	}
}

// subscribeAgain wakes each subscriber whose subscription is not confirmed, after a random pause: it polls its key, and its
// Follow subscribes again. By then the client may know where the key is, the ACL may have changed, or the
// server may have room. A refusal does not name its key. subscribeAgain does nothing if another call pauses.
func (c *conn) subscribeAgain() {
	if c.pausing.Swap(true) {
		return
	}
	c.hub.group.Go(func() {
		if background.Pause(c.closing, background.Jitter(retryPause)) != nil {
			return
		}
		c.hub.mu.Lock()
		defer c.hub.mu.Unlock()
		c.pausing.Store(false)
		for key, s := range c.subscribers {
			if !s.subscribed.Load() {
				delete(c.subscribers, key)
				s.signal()
			}
		}
	})
}

// wakeSubscribed marks every subscription as no longer confirmed, and wakes those that were.
func (c *conn) wakeSubscribed() {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	for _, s := range c.subscribers {
		if s.subscribed.Swap(false) {
			s.signal()
		}
	}
}

// retire removes the connection from the Hub if it has no subscribers. It reports whether it did.
func (c *conn) retire() bool {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	if len(c.subscribers) > 0 {
		return false
	}
	c.remove()
	return true
}

// remove removes the connection from the Hub: the next subscriber opens another one. The caller holds Hub.mu.
func (c *conn) remove() {
	if c.hub.conns[c.addr] == c {
		delete(c.hub.conns, c.addr)
	}
}

// end closes the connection, and wakes its subscribers: their Follow opens another one.
func (c *conn) end() {
	c.hub.mu.Lock()
	c.remove()
	c.hub.mu.Unlock()
	c.wakeSubscribed()
	c.close()
}
