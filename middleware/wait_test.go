package middleware_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// claimed is a hook that tells of every claim that was answered.
type claimed struct{ answers chan struct{} }

func (claimed) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c claimed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if cmd.Name() == "set" {
				c.answers <- struct{}{}
			}
		}
		return err
	}
}

func (c claimed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "set" {
			c.answers <- struct{}{}
		}
		return err
	}
}

// Two processes wait for a run on the first of them. On each, two waiters disconnect: the first one, whose look-ups serve
// all, and one in the middle.
//
// conformance: 26
func TestWaitersGetTheOneResponse(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		const staying = 10 // on each site
		g, c := newGate(), claimed{make(chan struct{}, 100)}
		h := behind(t, g, payOnce())
		var sites [2]*site
		for i := range sites {
			client := b.Client(t)
			client.AddHook(c)
			sites[i] = serveWaiting(t, client, h)
		}
		first := sites[0].inBackground(g)
		<-c.answers

		ctx, leave := context.WithCancel(t.Context())
		leaving := func(r *http.Request) { *r = *r.WithContext(ctx) }
		var answers, gone []<-chan answer
		for i, s := range sites {
			gone = append(gone, s.begin(leaving))
			s.awaitWaiting(b, int64(i)+1)
			for n := range staying {
				answers = append(answers, s.begin())
				if n == staying/2 {
					gone = append(gone, s.begin(leaving))
				}
			}
		}
		for range len(answers) + len(gone) {
			<-c.answers
		}
		leave()
		for _, s := range sites { // at once: the first one still runs
			s.wantEvents(middleware.InFlight, middleware.InFlight)
		}
		for _, a := range gone {
			if a := <-a; a.status != 0 {
				t.Errorf("one who left got %+v", a)
			}
		}
		sites[0].awaitWaiting(b, 2)

		close(g.open)
		want := <-first
		if want.status != http.StatusCreated || want.replayed() {
			t.Errorf("the first one got %+v, want 201 and no replay", want)
		}
		for _, answers := range answers {
			a := <-answers
			if a.status != want.status || a.body != want.body || !a.replayed() ||
				a.header.Get("Location") != want.header.Get("Location") {
				t.Errorf("a waiter got %+v, want a replay of %+v", a, want)
			}
		}
		replays := slices.Repeat([]middleware.Outcome{middleware.Replayed}, staying)
		sites[0].wantEvents(append([]middleware.Outcome{middleware.Executed}, replays...)...)
		sites[1].wantEvents(replays...)
		sites[0].wantRuns(1)
		sites[1].wantRuns(0)
	})
}

// The first run ends without leaving a response, in each possible way. No waiter runs in its place, on either instance; a
// retry does.
//
// conformance: 26
func TestRunFails(t *testing.T) {
	discard := func(w http.ResponseWriter, r *http.Request) {
		_ = middleware.FromContext(r.Context()).Discard()
		w.WriteHeader(http.StatusCreated)
	}
	for name, test := range map[string]struct {
		end   http.HandlerFunc
		lapse bool // the lease has to run out
		first middleware.Outcome
		opts  []middleware.Option
	}{
		"not to be stored": {
			end:   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
			first: middleware.Freed,
		},
		"discarded": {end: discard, first: middleware.Freed},
		"discarded, at most once": {
			end: discard, first: middleware.Freed,
			opts: []middleware.Option{middleware.WithAtMostOnce()},
		},
		"panic": {
			end:   func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			lapse: true, first: middleware.Panicked,
		},
		"broken": {
			end:   func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "3") },
			lapse: true, first: middleware.Unknown,
		},
		"silent for too long": {
			end:   func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			lapse: true, first: middleware.Unknown,
			opts: []middleware.Option{middleware.WithMaxDuration(20 * time.Millisecond)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				g := newGate()
				first := serveWaiting(t, b.Client(t), behind(t, g, test.end), test.opts...)
				done := first.begin(noRetry)
				<-g.entered
				waiters := make([]*site, 3)
				answers := make([]<-chan answer, len(waiters))
				for i := range waiters {
					waiters[i] = serveWaiting(t, b.Client(t), payOnce(), test.opts...)
					answers[i] = waiters[i].begin()
				}
				first.awaitWaiting(b, int64(len(waiters)))
				close(g.open)
				<-done
				first.wantEvents(test.first)
				if test.lapse {
					b.Elapse(t, leaseTTL)
				}
				for i, s := range waiters {
					a := <-answers[i]
					s.wantRefused(a, http.StatusServiceUnavailable, middleware.NotReplayable, "run-failed")
					if got := a.header.Get("Retry-After"); got != "1" {
						t.Errorf("Retry-After %q, want 1", got)
					}
					s.wantRuns(0)
				}
				waiters[0].want(waiters[0].send(), http.StatusCreated, middleware.Executed)
				waiters[1].want(waiters[1].send(), http.StatusCreated, middleware.Replayed)
			})
		})
	}
}
