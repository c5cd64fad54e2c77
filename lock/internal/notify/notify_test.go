package notify

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/lock/internal/rediserr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a pubSub, with a server that confirms each subscription, unless it is mute, and answers each PING.
type server struct {
	world  *world
	addr   string
	in     chan any // messages and errors, for ReceiveTimeout
	closed chan struct{}
}

func (s *server) note(text string) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.world.sent = append(s.world.sent, s.addr+text)
}

func (s *server) do(kind string, channels []string) error {
	s.note(kind + " " + strings.Join(channels, " "))
	if !s.world.mute.Load() {
		s.in <- &redis.Subscription{Kind: kind, Channel: channels[0]}
	}
	return nil
}

func (s *server) Subscribe(_ context.Context, c ...string) error    { return s.do("subscribe", c) }
func (s *server) Unsubscribe(_ context.Context, c ...string) error  { return s.do("unsubscribe", c) }
func (s *server) SSubscribe(_ context.Context, c ...string) error   { return s.do("ssubscribe", c) }
func (s *server) SUnsubscribe(_ context.Context, c ...string) error { return s.do("sunsubscribe", c) }

func (s *server) Ping(context.Context, ...string) error {
	s.note("ping")
	if !s.world.mute.Load() {
		s.in <- &redis.Pong{}
	}
	if s.world.noPing.Load() {
		return io.EOF
	}
	return nil
}

func (s *server) ReceiveTimeout(_ context.Context, d time.Duration) (any, error) {
	select {
	case m := <-s.in:
		if err, ok := m.(error); ok {
			return nil, err
		}
		return m, nil
	case <-s.closed:
		return nil, redis.ErrClosed
	case <-time.After(d):
		return nil, os.ErrDeadlineExceeded
	}
}

func (s *server) Close() error {
	s.note("close")
	close(s.closed)
	return nil
}

// world is a Hub in a bubble, whose keys are all on one node.
type world struct {
	*testing.T
	hub     *Hub
	at      string // the address of the node
	findErr error
	mute    atomic.Bool
	noPing  atomic.Bool // a PING cannot be sent
	last    *server     // the connection that was opened last

	mu   sync.Mutex
	sent []string // guarded by mu
}

func run(t *testing.T, at string, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, at: at}
		w.hub = NewHub(nil, background.NewGroup(context.Background()))
		w.hub.find = func(context.Context, string) (node, error) { return node{w.at, w.open}, w.findErr }
		test(w)
		if err := w.hub.group.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if synctest.Wait(); w.last != nil {
			<-w.last.closed
		}
	})
}

func (w *world) open(context.Context) pubSub {
	w.last = &server{world: w, addr: w.at, in: make(chan any, 10), closed: make(chan struct{})}
	return w.last
}

// want compares what was sent since the last call, and reports whether the Subscription was woken.
func (w *world) want(s *Subscription, sent string, woken bool) {
	w.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := strings.Join(w.sent, ", "); got != sent {
		w.Errorf("sent %q, want %q", got, sent)
	}
	w.sent = nil
	select {
	case <-s.C():
		if !woken {
			w.Error("woken for nothing")
		}
	default:
		if woken {
			w.Error("not woken")
		}
	}
}

// A Subscription is woken by its confirmation and by each message about its key. Its connection is closed once it is idle.
func TestSubscription(t *testing.T) {
	t.Parallel()
	for addr, prefix := range map[string]string{"": "", "a ": "a s"} { // on a Cluster SSUBSCRIBE
		run(t, addr, func(w *world) {
			s := w.hub.Subscribe("k")
			w.want(s, prefix+"subscribe k", true)
			s.Follow()
			w.last.in <- &redis.Message{Channel: "other"}
			w.want(s, "", false)
			for range 2 {
				w.last.in <- &redis.Message{Channel: "k"}
			}
			w.want(s, "", true)
			other := w.hub.Subscribe("other")
			w.want(other, prefix+"subscribe other", true)
			if n := w.hub.Subscriptions(); n != 2 {
				t.Errorf("%d subscriptions", n)
			}
			s.Close()
			w.want(s, prefix+"unsubscribe k", false)
			w.last.in <- &redis.Message{Channel: "k"}
			time.Sleep(quietLimit)
			w.want(s, addr+"ping", false)
			time.Sleep(10 * quietLimit)
			w.want(s, strings.TrimSuffix(strings.Repeat(addr+"ping, ", 10), ", "), false)
			other.Close()
			w.want(other, prefix+"unsubscribe other", false)
			time.Sleep(2 * quietLimit)
			w.want(other, addr+"close", false)
			if n := w.hub.Subscriptions(); n != 0 || len(w.hub.conns) != 0 {
				t.Errorf("%d subscriptions, %d connections", n, len(w.hub.conns))
			}
			again := w.hub.Subscribe("k")
			w.want(again, prefix+"subscribe k", true)
		})
	}
}

// A later Subscription to a key is not ended by the Close of an earlier one.
func TestSubscribeAfterClose(t *testing.T) {
	t.Parallel()
	run(t, "", func(w *world) {
		first := w.hub.Subscribe("k")
		w.want(first, "subscribe k", true)
		w.mute.Store(true)
		first.Close()
		synctest.Wait()
		second := w.hub.Subscribe("k")
		w.want(second, "unsubscribe k, subscribe k", false)
		first.Close()
		w.last.in <- &redis.Subscription{Kind: "unsubscribe", Channel: "k"} // of the first
		w.want(second, "", true)
		second.Follow()
		w.want(second, "subscribe k", false)
		w.last.in <- &redis.Subscription{Kind: "subscribe", Channel: "k"}
		w.want(second, "", true)
		first.Follow() // closed
		w.want(second, "", false)
	})
}

// What ends a subscription wakes it, and its Follow subscribes again, on the node that then has the key.
func TestSubscriptionEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		event  any
		within time.Duration // until it is woken
		then   string        // what is sent until then
		follow string        // what Follow sends after that
	}{
		"the slot has moved":    {&redis.Subscription{Kind: "sunsubscribe", Channel: "k"}, 0, "", "b ssubscribe k"},
		"the client is closed":  {redis.ErrClosed, 0, "a close", "b ssubscribe k"},
		"the connection breaks": {io.EOF, 0, "", "a sunsubscribe k, b ssubscribe k"},
		"the node is silent":    {nil, 2 * quietLimit, "a ping, a close", "b ssubscribe k"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, "a ", func(w *world) {
				s := w.hub.Subscribe("k")
				w.want(s, "a ssubscribe k", true)
				w.mute.Store(true)
				if first := w.last; test.event != nil {
					first.in <- test.event
				}
				time.Sleep(test.within)
				w.want(s, test.then, true)
				w.at = "b "
				w.mute.Store(false)
				s.Follow()
				synctest.Wait()
				w.mu.Lock()
				sent := strings.Join(w.sent, ", ")
				w.mu.Unlock()
				if sent != test.follow && sent != "b ssubscribe k, a sunsubscribe k" {
					t.Errorf("Follow sends %q, want %q", sent, test.follow)
				}
				w.sent = nil
				w.want(s, "", true)
				time.Sleep(2 * retryPause)
			})
		})
	}
	run(t, "", func(w *world) { // a PING that cannot be sent
		s := w.hub.Subscribe("k")
		w.want(s, "subscribe k", true)
		w.noPing.Store(true)
		time.Sleep(quietLimit)
		w.want(s, "ping, close", true)
	})
}

// After the connection has broken, go-redis subscribes again: what is confirmed then counts.
func TestReconnect(t *testing.T) {
	t.Parallel()
	run(t, "", func(w *world) {
		s := w.hub.Subscribe("k")
		w.want(s, "subscribe k", true)
		w.last.in <- io.EOF
		w.last.in <- &redis.Subscription{Kind: "subscribe", Channel: "k"}
		if synctest.Wait(); len(w.last.in) != 1 {
			t.Error("it receives again without a pause")
		}
		time.Sleep(retryPause)
		w.want(s, "", true)
		s.Follow()
		w.want(s, "", false)
		s.Close()
		w.want(s, "unsubscribe k", false)
		w.last.in <- io.EOF
		w.want(s, "close", false) // nobody needs it any more
	})
}

// A SUBSCRIBE that was refused is sent again after a pause, once for several refusals; what is confirmed stays.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, refusal := range []rediserr.Reply{"NOPERM this user has no permissions", "MOVED 1 127.0.0.1:1"} {
		run(t, "", func(w *world) {
			confirmed := w.hub.Subscribe("confirmed")
			w.want(confirmed, "subscribe confirmed", true)
			w.mute.Store(true)
			s := w.hub.Subscribe("k")
			w.want(s, "subscribe k", false)
			for _, refusals := range []int{3, 1} {
				for range refusals {
					w.last.in <- refusal
				}
				time.Sleep(retryPause)
				w.want(s, "", true)
				s.Follow()
				w.want(s, "subscribe k", false)
			}
			time.Sleep(retryPause)
			w.want(s, "", false)
			w.want(confirmed, "", false)
			w.last.in <- refusal // Close does not wait for the pause
		})
	}
}

// A key whose node is not known, or that is looked for while its Subscription is closed, is not subscribed.
func TestFollow(t *testing.T) {
	t.Parallel()
	run(t, "", func(w *world) {
		w.findErr = errors.New("no node")
		s := w.hub.Subscribe("k")
		w.want(s, "", false)
		w.findErr = nil
		find, found := w.hub.find, make(chan struct{})
		w.hub.find = func(ctx context.Context, key string) (node, error) { <-found; return find(ctx, key) }
		s.Follow()
		s.Follow() // the first one still looks
		synctest.Wait()
		found <- struct{}{}
		w.want(s, "subscribe k", true)
		s.Follow() // confirmed: it does not look
		closed := w.hub.Subscribe("closed")
		closed.Close()
		found <- struct{}{}
		w.want(closed, "", false)
	})
}
