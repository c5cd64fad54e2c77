package lock

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// subscription is a connection to one node, on which it tells of keys that were released or settled. One goroutine
// listens; another tells the node which keys we want to hear of, for that may have to wait for a connection.
type subscription struct {
	*channel
	addr    string
	pubsub  *redis.PubSub
	changed chan struct{} // holds a token when queues and sent may differ
	closing context.Context
	close   context.CancelFunc
	asking  atomic.Bool // those who are not heard will be asked to look soon

	// guarded by channel.mu
	queues map[string]*queue // by the key, which is the name of its channel as well
	sent   map[string]bool   // the keys that the node was asked to tell of
}

func newSubscription(c *channel, addr string, pubsub *redis.PubSub) *subscription {
	s := &subscription{
		channel: c, addr: addr, pubsub: pubsub, changed: make(chan struct{}, 1),
		queues: map[string]*queue{}, sent: map[string]bool{},
	}
	s.closing, s.close = context.WithCancel(c.locker.work.ctx)
	context.AfterFunc(s.closing, func() { _ = pubsub.Close() })
	c.locker.work.run(s.listen)
	c.locker.work.run(s.update)
	return s
}

// change lets update see what has changed.
func (s *subscription) change() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// add lets q hear messages here, once the node has confirmed that. The caller holds channel.mu.
func (s *subscription) add(q *queue) {
	if s.queues[q.key.text] != q || !s.sent[q.key.text] {
		s.queues[q.key.text] = q
		s.change()
	}
}

// drop ends that q hears messages here. The caller holds channel.mu.
func (s *subscription) drop(q *queue) {
	if s.queues[q.key.text] == q { // and not a later one on the same key
		delete(s.queues, q.key.text)
		s.change()
	}
}

// update lets the node know what has changed, until the connection is closed.
func (s *subscription) update() {
	for {
		select {
		case <-s.changed:
		case <-s.closing.Done():
			return
		}
		subscribe, unsubscribe := s.pubsub.Subscribe, s.pubsub.Unsubscribe
		if s.addr != "" {
			subscribe, unsubscribe = s.pubsub.SSubscribe, s.pubsub.SUnsubscribe
		}
		// Errors are not looked at: listen meets them too.
		wanted, unwanted := s.differences()
		for _, key := range unwanted {
			_ = unsubscribe(s.closing, key)
		}
		for _, key := range wanted { // one by one: a node refuses a command about several slots
			_ = subscribe(s.closing, key)
		}
	}
}

// differences returns which keys the node is to tell of from now on, and which not any more.
func (s *subscription) differences() (wanted, unwanted []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.sent {
		if _, ok := s.queues[key]; !ok {
			unwanted = append(unwanted, key)
			delete(s.sent, key)
		}
	}
	for key := range s.queues {
		if !s.sent[key] {
			wanted = append(wanted, key)
			s.sent[key] = true
		}
	}
	return wanted, unwanted
}

const (
	quietLimit     = 3 * time.Second // without a message the node is asked for a sign of life
	reconnectPause = time.Second
)

// listen wakes queues until nobody has waited here for a while. go-redis connects and subscribes anew when a connection
// breaks; one that has only fallen silent is given up.
func (s *subscription) listen() {
	defer s.end()
	for asked := false; ; {
		message, err := s.pubsub.ReceiveTimeout(s.closing, quietLimit)
		switch {
		case err == nil:
			asked = false
			s.hear(message)
		case isMoved(err): // a subscription was refused: the client does not know yet where the key is now
			s.askAgain()
		case isReply(err): // another one was: by an ACL, or a Cluster without sharded pub/sub
		case isTimeout(err):
			if asked || s.retire() || s.pubsub.Ping(s.closing) != nil {
				return
			}
			asked = true
		case errors.Is(err, redis.ErrClosed):
			return
		default:
			s.deaf()
			if s.retire() || pause(s.closing, jitter(reconnectPause)) != nil {
				return
			}
		}
	}
}

// hear wakes the queue that a message is about. A confirmed subscription does too: what came before it was not heard.
func (s *subscription) hear(message any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m := message.(type) {
	case *redis.Message:
		if q, ok := s.queues[m.Channel]; ok {
			q.signal()
		}
	case *redis.Subscription:
		q, ok := s.queues[m.Channel]
		if !ok {
			return
		}
		heard := m.Kind == "subscribe" || m.Kind == "ssubscribe"
		if !heard { // the slot has moved, or a queue on the same key has gone just now
			delete(s.sent, m.Channel)
		}
		q.heard.Store(heard)
		q.signal()
	}
}

// askAgain lets those who are not heard look again soon, and then follow their keys.
func (s *subscription) askAgain() {
	if s.asking.Swap(true) {
		return
	}
	s.locker.work.run(func() {
		defer s.asking.Store(false)
		if pause(s.closing, jitter(reconnectPause/5)) != nil {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for key, q := range s.queues {
			if !q.heard.Load() {
				delete(s.sent, key)
				q.signal()
			}
		}
	})
}

// deaf lets nobody believe any more that messages arrive.
func (s *subscription) deaf() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose()
}

// lose lets those look who were heard: something may have been missed. The caller holds mu.
func (s *subscription) lose() {
	for _, q := range s.queues {
		if q.heard.Swap(false) {
			q.signal()
		}
	}
}

// retire takes the connection out of use if nobody waits, and tells whether it did.
func (s *subscription) retire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queues) > 0 {
		return false
	}
	s.forget()
	return true
}

// forget lets the next one who waits open another connection. The caller holds mu.
func (s *subscription) forget() {
	if s.nodes[s.addr] == s {
		delete(s.nodes, s.addr)
	}
}

// end closes the connection. Whoever was heard here is to open another one.
func (s *subscription) end() {
	s.mu.Lock()
	s.forget()
	s.lose()
	s.mu.Unlock()
	s.close()
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
