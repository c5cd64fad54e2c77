package lock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
)

// slowServer is a client of a server that answers the commands of all callers one after the other, on the clock of a
// testing/synctest bubble. Every key holds the same value.
type slowServer struct {
	redis.UniversalClient // nil: no other method is called

	each  time.Duration // that a command takes
	away  time.Duration // that an answer is under way
	stall time.Duration // before anything is answered
	heeds bool          // the client heeds contexts

	requests chan slowRequest
	answered atomic.Int64 // commands
}

type slowRequest struct {
	commands int
	answered chan struct{} // closed with the answer
}

func (s *slowServer) serve(over <-chan struct{}) {
	time.Sleep(s.stall)
	for {
		select {
		case r := <-s.requests:
			time.Sleep(time.Duration(r.commands) * s.each)
			s.answered.Add(int64(r.commands))
			time.AfterFunc(s.away, func() { close(r.answered) })
		case <-over:
			return
		}
	}
}

func (s *slowServer) Process(ctx context.Context, cmd redis.Cmder) error {
	return s.exec(ctx, []redis.Cmder{cmd})
}

func (s *slowServer) Pipeline() redis.Pipeliner { return &slowPipeline{server: s} }

// exec waits for an answer as go-redis does: for three seconds, or as long as the context if it heeds that.
func (s *slowServer) exec(ctx context.Context, cmds []redis.Cmder) (err error) {
	r := slowRequest{answered: make(chan struct{})}
	for _, cmd := range cmds {
		if cmd.Name() == "set" { // not a release
			r.commands++
		}
	}
	s.requests <- r
	if !s.heeds {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	select {
	case <-r.answered:
	case <-ctx.Done():
		err = ctx.Err()
	}
	for _, cmd := range cmds {
		switch {
		case err != nil:
			cmd.SetErr(err)
		case cmd.Name() == "set":
			cmd.(interface{ SetVal(any) }).SetVal(settledText)
		default:
			cmd.SetErr(redis.Nil)
		}
	}
	return err
}

type slowPipeline struct {
	redis.Pipeliner // nil
	server          *slowServer
	cmds            []redis.Cmder
}

func (p *slowPipeline) Process(_ context.Context, cmd redis.Cmder) error {
	p.cmds = append(p.cmds, cmd)
	return nil
}

func (p *slowPipeline) Exec(ctx context.Context) ([]redis.Cmder, error) {
	return p.cmds, p.server.exec(ctx, p.cmds)
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
					server, over := &slowServer{each: c.each, away: c.away, stall: c.stall, heeds: heeds}, make(chan struct{})
					defer close(over)
					server.requests = make(chan slowRequest)
					go server.serve(over)
					locker := lock.New(server, "test", lock.WithOpTimeout(500*time.Millisecond))
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
