package oncetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

const (
	patience = 15 * time.Second       // for an answer: longer than most handlers wait for a first request
	glance   = 200 * time.Millisecond // after which a request that has asked Redis and has no answer waits for something
	counting = 100 * time.Millisecond // for a call of Effects
)

// stage is the world of one scenario: a Redis, a key, and the effects since the scenario began. Its methods are for the
// goroutine of the test, unless they say otherwise.
type stage struct {
	t      testing.TB
	c      *Case
	name   string
	key    string
	server *miniredis.Miniredis
	before int          // effects when the scenario began
	stuck  atomic.Int64 // calls of Case.Effects that have taken too long and are not over
}

func newStage(t testing.TB, c *Case, name string) *stage {
	t.Helper()
	return &stage{t: t, c: c, name: name, key: newKey(), server: miniredis.RunT(t), before: c.Effects()}
}

func newKey() string { return "oncetest-" + rand.Text() }

// failf reports a fault: what happened, and then what to do.
func (s *stage) failf(format string, args ...any) {
	s.t.Helper()
	s.t.Errorf("oncetest: "+s.name+": "+format, args...)
}

// effects returns how often the effect has happened in the scenario.
func (s *stage) effects() int { return s.c.Effects() - s.before }

// happened reports whether the effect has happened. It is called in the handler's goroutine and others: a call of Effects
// that has to wait for the handler, which waits for this very call, counts as no. Until that call has come back, happened
// does not wait again.
func (s *stage) happened() bool {
	if s.stuck.Load() > 0 {
		return false
	}
	counted := make(chan int)
	go func() { counted <- s.effects() }()
	select {
	case n := <-counted:
		return n > 0
	case <-time.After(counting):
	}
	s.stuck.Add(1)
	go func() {
		<-counted
		s.stuck.Add(-1)
	}()
	return false
}

// leaseRunsOut moves the clock of Redis behind the end of every lease that is not renewed.
func (s *stage) leaseRunsOut() { s.server.FastForward(s.c.Lease + time.Second) }

// instance is one process of the service: a handler with a client for Redis of its own.
type instance struct {
	stage   *stage
	handler http.Handler
	doomed  atomic.Bool  // it dies at the first command to Redis after the effect
	dead    atomic.Bool  // nothing it sends reaches Redis any more
	written atomic.Int64 // commands to Redis, or several at a time

	mu    sync.Mutex // guards conns
	conns []net.Conn // all that were dialled
}

// start starts an instance.
func (s *stage) start() *instance {
	s.t.Helper()
	i := &instance{stage: s}
	client := redis.NewClient(&redis.Options{
		Addr: s.server.Addr(), ContextTimeoutEnabled: true, Dialer: i.dial,
	})
	s.t.Cleanup(func() { _ = client.Close() })
	if err := client.Ping(context.Background()).Err(); err != nil { // also so that the first request finds a connection
		s.t.Logf("oncetest: %s: the embedded Redis does not answer: %v", s.name, err)
	}
	i.handler = s.c.Handler(client)
	return i
}

func (i *instance) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.conns = append(i.conns, conn)
	return &mortalConn{Conn: conn, owner: i}, nil
}

// dies reports whether the instance is dead, or dies now. It may be called in any goroutine.
func (i *instance) dies() bool {
	if !i.dead.Load() && i.doomed.Load() && i.stage.happened() {
		i.dead.Store(true)
	}
	return i.dead.Load()
}

// bury ends the simulation of a dead process. What its Locker still tries to store in the background is stored, so that
// it can be closed without an error.
func (i *instance) bury() {
	i.doomed.Store(false)
	if !i.dead.Load() {
		return
	}
	asked := i.written.Load()
	i.dead.Store(false)
	i.mu.Lock()
	for _, conn := range i.conns { // they wait for replies to what was never sent
		_ = conn.Close()
	}
	i.mu.Unlock()
	for end := time.Now().Add(2 * time.Second); i.written.Load() == asked && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
}

// mortalConn is a connection to Redis over which a dead instance sends nothing. To the instance it looks as if Redis were
// silent.
type mortalConn struct {
	net.Conn
	owner *instance
}

func (c *mortalConn) Write(p []byte) (int, error) {
	if c.owner.dies() {
		return len(p), nil
	}
	c.owner.written.Add(1)
	return c.Conn.Write(p)
}

// expectOne reports the fault if the effect did not happen exactly once. done says what was done; advice what to do if it
// happened more than once.
func (s *stage) expectOne(done string, last *exchange, advice string) {
	s.t.Helper()
	switch n := s.effects(); {
	case n == 1:
	case n > 1:
		s.failf("%s, and the effect happened %s. %s", done, times(n), advice)
	default:
		s.failf("%s, and the effect did not happen; the last answer was %s. %s", done, last, adviceNoEffect)
	}
}

func times(n int) string {
	if n == 2 {
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}
