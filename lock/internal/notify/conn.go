package notify

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/lock/internal/background"
	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

const (
	quietLimit     = 3 * time.Second // without a message the node is asked for a sign of life
	reconnectPause = time.Second
)

// conn is a connection to one node, on which it publishes. One goroutine listens; another subscribes, for that may have to
// wait for a connection.
type conn struct {
	hub     *Hub
	addr    string
	pubsub  *redis.PubSub
	changed chan struct{} // holds a token when subscribers and sent may differ
	closing context.Context
	close   context.CancelFunc
	asking  atomic.Bool // those who are not heard will be asked to look soon

	// guarded by Hub.mu
	subscribers map[string]*Subscription // by the key, which is the name of its channel as well
	sent        map[string]bool          // the keys that the node was asked for
}

func newConn(h *Hub, addr string, pubsub *redis.PubSub) *conn {
	c := &conn{
		hub: h, addr: addr, pubsub: pubsub, changed: make(chan struct{}, 1),
		subscribers: map[string]*Subscription{}, sent: map[string]bool{},
	}
	c.closing, c.close = context.WithCancel(h.group.Context())
	context.AfterFunc(c.closing, func() { _ = pubsub.Close() })
	h.group.Go(c.listen)
	h.group.Go(c.update)
	return c
}

// change lets update see what has changed.
func (c *conn) change() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// add lets s hear messages here, once the node has confirmed that. The caller holds Hub.mu.
func (c *conn) add(s *Subscription) {
	if c.subscribers[s.key] != s || !c.sent[s.key] {
		c.subscribers[s.key] = s
		c.change()
	}
}

// drop ends what add began. The caller holds Hub.mu.
func (c *conn) drop(s *Subscription) {
	if c.subscribers[s.key] == s { // and not a later one to the same key
		delete(c.subscribers, s.key)
		c.change()
	}
}

// update subscribes and unsubscribes, until the connection is closed.
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
		// Errors are not looked at: listen meets them too.
		wanted, unwanted := c.differences()
		for _, key := range unwanted {
			_ = unsubscribe(c.closing, key)
		}
		for _, key := range wanted { // one by one: a node refuses a command about several slots
			_ = subscribe(c.closing, key)
		}
	}
}

// differences returns which keys the node is to be asked for, and which not any more.
func (c *conn) differences() (wanted, unwanted []string) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	for key := range c.sent {
		if _, ok := c.subscribers[key]; !ok {
			unwanted = append(unwanted, key)
			delete(c.sent, key)
		}
	}
	for key := range c.subscribers {
		if !c.sent[key] {
			wanted = append(wanted, key)
			c.sent[key] = true
		}
	}
	return wanted, unwanted
}

// listen wakes subscribers until there has been none for a while. go-redis connects and subscribes anew when a connection
// breaks; one that has only fallen silent is given up.
func (c *conn) listen() {
	defer c.end()
	for asked := false; ; {
		message, err := c.pubsub.ReceiveTimeout(c.closing, quietLimit)
		switch {
		case err == nil:
			asked = false
			c.hear(message)
		case rediserr.IsMoved(err): // a subscription was refused: the client does not know yet where the key is now
			c.askAgain()
		case rediserr.IsReply(err): // another one was: by an ACL, or a Cluster without sharded pub/sub
		case rediserr.IsTimeout(err):
			if asked || c.retire() || c.pubsub.Ping(c.closing) != nil {
				return
			}
			asked = true
		case errors.Is(err, redis.ErrClosed):
			return
		default:
			c.disconnected()
			if c.retire() || background.Pause(c.closing, background.Jitter(reconnectPause)) != nil {
				return
			}
		}
	}
}

// hear wakes the subscriber that a message is about. A confirmed subscription does too: what came before it was not heard.
func (c *conn) hear(message any) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	switch m := message.(type) {
	case *redis.Message:
		if s, ok := c.subscribers[m.Channel]; ok {
			s.signal()
		}
	case *redis.Subscription:
		s, ok := c.subscribers[m.Channel]
		if !ok {
			return
		}
		heard := m.Kind == "subscribe" || m.Kind == "ssubscribe"
		if !heard { // the slot has moved, or a subscriber to the same key has gone just now
			delete(c.sent, m.Channel)
		}
		s.heard.Store(heard)
		s.signal()
	}
}

// askAgain wakes those who are not heard in a moment: they look, and then follow their keys.
func (c *conn) askAgain() {
	if c.asking.Swap(true) {
		return
	}
	c.hub.group.Go(func() {
		defer c.asking.Store(false)
		if background.Pause(c.closing, background.Jitter(reconnectPause/5)) != nil {
			return
		}
		c.hub.mu.Lock()
		defer c.hub.mu.Unlock()
		for key, s := range c.subscribers {
			if !s.heard.Load() {
				delete(c.sent, key)
				s.signal()
			}
		}
	})
}

// disconnected wakes those who were heard: something may be missed from now on.
func (c *conn) disconnected() {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	c.wakeHeard()
}

// wakeHeard wakes those who were heard, and are not any more. The caller holds Hub.mu.
func (c *conn) wakeHeard() {
	for _, s := range c.subscribers {
		if s.heard.Swap(false) {
			s.signal()
		}
	}
}

// retire takes the connection out of use if it has no subscribers, and reports whether it did.
func (c *conn) retire() bool {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	if len(c.subscribers) > 0 {
		return false
	}
	c.remove()
	return true
}

// remove lets the next subscriber open another connection. The caller holds Hub.mu.
func (c *conn) remove() {
	if c.hub.conns[c.addr] == c {
		delete(c.hub.conns, c.addr)
	}
}

// end closes the connection. Those who were heard here have to open another one.
func (c *conn) end() {
	c.hub.mu.Lock()
	c.remove()
	c.wakeHeard()
	c.hub.mu.Unlock()
	c.close()
}
