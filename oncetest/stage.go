package oncetest

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

const (
	glance   = 500 * time.Millisecond // a request that has no answer after that waits for something
	counting = 100 * time.Millisecond // the time for a call of Effects
)

// stage is what one scenario runs on: a Redis, a key, and the count of effects before. Call its methods in the test's
// goroutine, unless their comment says otherwise.
type stage struct {
	t      testing.TB
	c      *Case
	name   string
	key    string
	server *miniredis.Miniredis
	before int       // effects when the scenario began
	ends   time.Time // when the limit of Run is over
	isOver bool      // the limit of Run was over before an answer

	withoutLength bool // the requests come in chunks, so that the handler may refuse them with 411
}

func newStage(t testing.TB, c *Case, name string, ends time.Time) *stage {
	t.Helper()
	return &stage{t: t, c: c, name: name, key: newKey(), server: miniredis.RunT(t), before: c.Effects(), ends: ends}
}

func newKey() string { return "oncetest-" + rand.Text() }

// failf fails the test with what happened, and then what to do.
func (s *stage) failf(format string, args ...any) {
	s.t.Helper()
	s.t.Errorf("oncetest: "+s.name+": "+format, args...)
}

// failOver fails the test because the limit of Run is over.
func (s *stage) failOver(format string, args ...any) {
	s.t.Helper()
	s.isOver = true
	s.failf("Case.Limit, %v, was over before "+format, append([]any{s.c.Limit}, args...)...)
}

// effects returns how often the effect has happened in the scenario.
func (s *stage) effects() int { return s.c.Effects() - s.before }

// happened reports whether the effect has happened. It may be called in any goroutine. In the handler's, Effects may
// wait for a mutex of the handler, which waits for happened: so happened returns false if Effects takes too long.
func (s *stage) happened() bool {
	counted := make(chan int, 1)
	go func() { counted <- s.effects() }()
	select {
	case n := <-counted:
		return n > 0
	case <-time.After(counting):
		return false
	}
}

// leaseRunsOut advances the clock of Redis past the end of every lease that is not renewed.
func (s *stage) leaseRunsOut() { s.server.FastForward(time.Hour) }

// instance is one process of the service: a handler and its Redis client.
type instance struct {
	stage   *stage
	handler http.Handler
	doomed  atomic.Bool  // it dies at the first command to Redis after the effect
	dead    atomic.Bool  // nothing that it sends reaches Redis
	written atomic.Int64 // writes to Redis, of one or several commands
}

// start starts an instance.
func (s *stage) start() *instance {
	s.t.Helper()
	i := &instance{stage: s}
	client := redis.NewClient(&redis.Options{
		Addr: s.server.Addr(), ContextTimeoutEnabled: true, Dialer: i.dial,
	})
	s.t.Cleanup(func() { _ = client.Close() })
	if err := client.Ping(context.Background()).Err(); err != nil { // this also opens a connection for the first request
		s.t.Logf("oncetest: %s: the embedded Redis does not answer: %v", s.name, err)
	}
	i.handler = s.c.Handler(client)
	return i
}

func (i *instance) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if i.dies() {
		return nil, errDead
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &mortalConn{Conn: conn, owner: i}, nil
}

var errDead = errors.New("oncetest: the process is dead, and reaches no Redis")

// dies reports whether the instance is dead, or dies now. It may be called in any goroutine.
func (i *instance) dies() bool {
	if !i.dead.Load() && i.doomed.Load() && i.stage.happened() {
		i.dead.Store(true)
	}
	return i.dead.Load()
}

// bury ends the simulation of a dead process. It lets the Locker store what it still tries to store in the background,
// so that the Locker can be closed without an error.
func (i *instance) bury() {
	i.doomed.Store(false)
	if !i.dead.Load() {
		return
	}
	asked := i.written.Load()
	i.dead.Store(false)
	for end := time.Now().Add(2 * time.Second); i.written.Load() == asked && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
}

// mortalConn is a connection to Redis over which a dead instance sends nothing: to the instance it is broken, so that a test
// need not wait until operations time out.
type mortalConn struct {
	net.Conn
	owner *instance
}

func (c *mortalConn) Write(p []byte) (int, error) {
	if c.owner.dies() {
		return 0, errDead
	}
	c.owner.written.Add(1)
	return c.Conn.Write(p)
}

// expectOne fails the test if the effect did not happen exactly once. done is what was done, and advice what to do if
// it happened more than once.
func (s *stage) expectOne(done string, last *exchange, advice string) {
	s.t.Helper()
	switch n := s.effects(); {
	case n == 1:
	case n > 1:
		s.failf("%s, and the effect happened %d times. %s", done, n, advice)
	default:
		s.failf("%s, and the effect did not happen; the last answer was %s. %s", done, last, adviceNoEffect)
	}
}
