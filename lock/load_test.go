package lock_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// slowServer answers the commands of all clients one after the other, on the clock of a testing/synctest bubble. Every
// key holds the same value.
type slowServer struct {
	each  time.Duration // that a command takes
	away  time.Duration // that an answer is under way
	stall time.Duration // before anything is answered

	requests chan slowRequest
	answered atomic.Int64 // commands
}

type slowRequest struct {
	commands int
	answers  []byte
	conn     *slowConn
}

// connect returns a client of it.
func (s *slowServer) connect(t *testing.T, heedsContexts bool) *redistest.Direct {
	s.requests = make(chan slowRequest)
	over := make(chan struct{})
	go s.serve(over)
	t.Cleanup(func() { close(over) })
	return redistest.NewDirect(t, &redis.Options{
		WriteBufferSize:       128 << 10, // a batch is one write
		ContextTimeoutEnabled: heedsContexts,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			conn := &slowConn{server: s, answers: make(chan []byte, 1), closed: make(chan struct{})}
			return conn, nil
		},
	})
}

func (s *slowServer) serve(over <-chan struct{}) {
	time.Sleep(s.stall)
	for {
		select {
		case r := <-s.requests:
			time.Sleep(time.Duration(r.commands) * s.each)
			s.answered.Add(int64(r.commands))
			time.AfterFunc(s.away, func() { r.conn.answers <- r.answers })
		case <-over:
			return
		}
	}
}

// slowConn is a connection to it.
type slowConn struct {
	net.Conn // nil
	server   *slowServer
	answers  chan []byte
	unread   bytes.Buffer
	deadline time.Time // of a read
	close    sync.Once
	closed   chan struct{}
}

func (c *slowConn) Write(p []byte) (int, error) {
	r := slowRequest{conn: c}
	for _, m := range commandName.FindAllSubmatch(p, -1) {
		if string(m[1]) == "set" {
			r.commands++
			r.answers = fmt.Appendf(r.answers, "$%d\r\n%s\r\n", len(settledText), settledText)
		} else { // a release
			r.answers = append(r.answers, "$-1\r\n"...)
		}
	}
	select {
	case c.server.requests <- r:
		return len(p), nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *slowConn) Read(p []byte) (int, error) {
	if c.unread.Len() == 0 {
		limit := time.NewTimer(time.Until(c.deadline))
		defer limit.Stop()
		select {
		case answers := <-c.answers:
			c.unread.Write(answers)
		case <-limit.C:
			return 0, os.ErrDeadlineExceeded
		case <-c.closed:
			return 0, io.EOF
		}
	}
	return c.unread.Read(p)
}

func (c *slowConn) SetReadDeadline(t time.Time) error { c.deadline = t; return nil }
func (c *slowConn) SetDeadline(t time.Time) error     { return c.SetReadDeadline(t) }
func (*slowConn) SetWriteDeadline(time.Time) error    { return nil }
func (*slowConn) RemoteAddr() net.Addr                { return &net.TCPAddr{} }

func (c *slowConn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return nil
}

// Under overload a server works for callers that still wait, no matter how many there are. Each caller calls again as
// soon as its call has returned.
func TestLoad(t *testing.T) {
	if raceEnabled {
		t.Skip("so many timers in a bubble can crash the race detector: https://github.com/golang/go/issues/78156")
	}
	const span = 10 * time.Second
	for name, c := range map[string]struct {
		each, away, stall time.Duration

		callers int
		answers int // in that time, at least
		wasted  int // of what the server has done, at most
	}{
		"below the limit":           {time.Millisecond, 0, 0, 400, 9500, 50},
		"twice the limit":           {time.Millisecond, 0, 0, 1000, 6500, 3900},
		"six times the limit":       {time.Millisecond, 0, 0, 3000, 6500, 3900},
		"a server that is slow":     {5 * time.Millisecond, 0, 0, 300, 800, 1400},
		"a server that is far":      {0, 60 * time.Millisecond, 0, 3000, 150_000, 0},
		"a server that has stalled": {0, 20 * time.Millisecond, 2 * time.Second, 3000, 100_000, 2000},
	} {
		for client, heeds := range map[string]bool{"default client": false, "heeds contexts": true} {
			t.Run(name+", "+client, func(t *testing.T) {
				if c.callers >= 3000 {
					redistest.Long(t)
				}
				synctest.Test(t, func(t *testing.T) {
					server := &slowServer{each: c.each, away: c.away, stall: c.stall}
					locker := lock.New(server.connect(t, heeds).Client, "test", lock.WithOpTimeout(500*time.Millisecond))
					var answers, failures int64
					var callers sync.WaitGroup
					begun := time.Now()
					for range c.callers {
						callers.Go(func() {
							for time.Since(begun) < span {
								if _, err := locker.Claim(t.Context(), "k", nil, 0); err != nil {
									atomic.AddInt64(&failures, 1)
								} else {
									atomic.AddInt64(&answers, 1)
								}
							}
						})
					}
					callers.Wait()
					t.Logf("%d answers, %d failures, %d commands", answers, failures, server.answered.Load())
					if answers < int64(c.answers) {
						t.Errorf("%d answers, want at least %d", answers, c.answers)
					}
					if wasted := server.answered.Load() - answers; wasted > int64(c.wasted) {
						t.Errorf("the server has answered %d commands for nobody, want at most %d", wasted, c.wasted)
					}
					closeWithin(t, locker)
				})
			})
		}
	}
}

const settledText = valueStart + someToken + someTime + "value"
