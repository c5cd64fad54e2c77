package middleware_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// The tests in this file measure the heap of the whole process. They are not parallel, so that they are alone in it:
// the parallel ones wait until all others are done.

// heap returns how much of it is in use.
func heap() int64 {
	for range 2 { // what a sync.Pool holds goes with the second collection
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// sendMany sends requests with the body sent, each with a key of its own, and expects responses of the length given.
func (s *site) sendMany(requests int, sent []byte, length, want int64) *sync.WaitGroup {
	var clients sync.WaitGroup
	for n := range requests {
		r := s.request(key(strconv.Itoa(n)))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(sent)), length
		clients.Go(func() {
			resp, err := s.client.Do(r)
			if err != nil {
				s.t.Error(err)
				return
			}
			defer resp.Body.Close()
			if n, err := io.Copy(io.Discard, resp.Body); n != want || err != nil {
				s.t.Errorf("the client got %d bytes, %v", n, err)
			}
		})
	}
	return &clients
}

// A request costs its body limit and its response limit at most, and what any request costs.
func TestMemoryOfManyRequests(t *testing.T) {
	const (
		requests  = 24
		bodyLimit = 1 << 20
		respLimit = 1 << 20
		slack     = 256 << 10 // goroutines, connections, the race detector; one more copy would be 1 MiB
	)
	sent := bytes.Repeat([]byte("x"), bodyLimit)
	piece := bytes.Repeat([]byte("y"), 1000)
	for name, length := range map[string]int64{"length known": bodyLimit, "chunked": -1} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, r *http.Request) {
				if n, err := io.Copy(io.Discard, r.Body); n != bodyLimit || err != nil {
					t.Errorf("read %d, %v", n, err)
				}
				for left := respLimit; left > 0; left -= len(piece) {
					_, _ = w.Write(piece[:min(left, len(piece))])
				}
				g.pass()
			}, middleware.WithMaxBody(bodyLimit), middleware.WithMaxResponse(respLimit))
			before := heap()
			clients := s.sendMany(requests, sent, length, respLimit)
			for range requests {
				<-g.entered
			}
			each := (heap() - before) / requests
			close(g.open)
			clients.Wait()
			t.Logf("%d bytes each", each)
			if each > bodyLimit+respLimit+slack {
				t.Errorf("a request costs %d bytes, %d more than its limits", each, each-bodyLimit-respLimit)
			}
			for range requests {
				if e := s.event(); e.Outcome != middleware.Executed {
					t.Errorf("%+v, want executed", e)
				}
			}
		})
	}
}

// holdSettles is a hook of the Redis client that stops each response on its way into Redis.
type holdSettles struct{ gate *gate }

func (h holdSettles) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h holdSettles) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h holdSettles) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if len(cmd.Args()) > 7 { // no other script has as many
			h.gate.pass()
		}
		return next(ctx, cmd)
	}
}

// While a response is stored, it is there twice: as it will go out, and as it is stored. The request's body is gone.
func TestMemoryWhileStoring(t *testing.T) {
	const limit, slack = 1 << 20, 256 << 10 // as above
	const lockers, requests = 6, 4          // each Locker has at most four commands under way, and lets others wait
	sent := bytes.Repeat([]byte("x"), limit)
	piece := bytes.Repeat([]byte("y"), limit)
	g := newGate()
	var sites []*site
	for range lockers {
		client := redistest.Mini(t).Client(t)
		client.AddHook(holdSettles{g})
		sites = append(sites, serveOn(t, newLocker(t, client), func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(piece)
		}, middleware.WithMaxBody(limit), middleware.WithMaxResponse(limit)))
	}
	before := heap()
	var clients []*sync.WaitGroup
	for _, s := range sites {
		clients = append(clients, s.sendMany(requests, sent, limit, limit))
	}
	for range lockers * requests {
		<-g.entered
	}
	each := (heap() - before) / (lockers * requests)
	close(g.open)
	if each > limit+limit+slack {
		t.Errorf("a request costs %d bytes, %d more than its limits", each, each-limit-limit)
	}
	for i, s := range sites {
		clients[i].Wait()
		for range requests {
			if e := s.event(); e.Outcome != middleware.Executed {
				t.Errorf("%+v, want executed", e)
			}
		}
	}
}

// A response that is too long to keep is sent, and does not stay in memory.
//
// conformance: 47
func TestMemoryOfAnEndlessResponse(t *testing.T) {
	const limit, pieces, slack = 64 << 10, 64, 1 << 20
	piece := bytes.Repeat([]byte("y"), 1<<20)
	g := newGate()
	s := serve(t, redistest.Mini(t), func(w http.ResponseWriter, _ *http.Request) {
		for range pieces {
			_, _ = w.Write(piece)
		}
		g.pass()
	}, middleware.WithMaxResponse(limit))
	before := heap()
	got := make(chan int64, 1)
	go func() {
		defer close(got)
		resp, err := s.client.Do(s.request())
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		n, _ := io.Copy(io.Discard, resp.Body)
		got <- n
	}()
	<-g.entered
	grown := heap() - before
	close(g.open)
	if n := <-got; n != pieces*int64(len(piece)) {
		t.Errorf("the client got %d bytes", n)
	}
	if grown > limit+slack {
		t.Errorf("%d bytes are still held of a response of %d", grown, pieces*len(piece))
	}
	if e := s.event(); e.Outcome != middleware.NotStored {
		t.Errorf("%+v, want not-stored", e)
	}
}
