package middleware_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// serveWaiting starts a site with a Locker of its own, as another process would have. Its duplicates wait for longer than
// any test takes. All requests have the key "k".
func serveWaiting(t *testing.T, client redis.UniversalClient, h http.HandlerFunc, opts ...middleware.Option) *site {
	t.Helper()
	// Looks that no message asks for come soon: a lease that runs out sends none.
	locker := newLocker(t, client, lock.WithRetry(lock.Retry{Max: 50 * time.Millisecond}))
	return serveWaitingOn(t, locker, h, opts...)
}

func serveWaitingOn(t *testing.T, locker *lock.Locker, h http.HandlerFunc, opts ...middleware.Option) *site {
	t.Helper()
	theKey := func(*http.Request) (string, error) { return "k", nil }
	return serveKeyed(t, locker, theKey, h, append([]middleware.Option{middleware.WithWait(30 * time.Second)}, opts...)...)
}

// begin sends a request and does not wait for its answer, which is empty if there is none.
func (s *site) begin(edits ...edit) <-chan answer {
	s.t.Helper()
	answers := make(chan answer, 1)
	r := s.request(edits...)
	go func() {
		a, _ := s.try(r)
		answers <- a
	}()
	return answers
}

// awaitWaiting returns when n lockers wait for the key. They have looked at it then, and a message will wake them.
func (s *site) awaitWaiting(b redistest.Backend, n int64) {
	s.t.Helper()
	client, key := b.Client(s.t), s.locker.StorageKey("k")
	poll, deadline := time.NewTicker(5*time.Millisecond), time.After(20*time.Second)
	defer poll.Stop()
	for {
		subscribed, err := client.PubSubNumSub(s.t.Context(), key).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		if subscribed[key] == n {
			return
		}
		select {
		case <-poll.C:
		case <-deadline:
			s.t.Errorf("%d lockers wait, want %d", subscribed[key], n)
			return
		}
	}
}

// wantRefused checks what a waiter was answered.
func (s *site) wantRefused(a answer, status int, outcome middleware.Outcome, problem string) middleware.Event {
	s.t.Helper()
	e := s.want(a, status, outcome)
	if a.problem() != problem || a.header.Get("Cache-Control") != "no-store" || a.replayed() {
		s.t.Errorf("problem %q, header %v, want %s, not to be stored, and no replay", a.problem(), a.header, problem)
	}
	return e
}

// wantEvents checks what the next events say, in any order.
func (s *site) wantEvents(want ...middleware.Outcome) {
	s.t.Helper()
	got := make([]middleware.Outcome, len(want))
	for i := range got {
		got[i] = s.event().Outcome
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Errorf("outcomes %q, want %q", got, want)
	}
}

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

// behind returns a handler that first waits for the gate to open, or for a test that has failed to end.
func behind(t *testing.T, g *gate, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		g.passOr(t.Context().Done())
		h(w, r)
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

// A duplicate disconnects during its claim, which is to tell whether to wait at all.
//
// conformance: 26
func TestWaiterLeavesWhileItLooks(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		g, c := newGate(), claimed{make(chan struct{}, 100)}
		p := redistest.NewProxy(t, b.Addr())
		client := p.Client(t)
		client.AddHook(c)
		first, s := serveWaiting(t, b.Client(t), behind(t, g, payOnce())), serveWaiting(t, client, payOnce())
		done := first.inBackground(g)

		look := p.HoldRequest(redistest.Nth(1, looks))
		ctx, leave := context.WithCancel(t.Context())
		gone := s.begin(func(r *http.Request) { *r = *r.WithContext(ctx) })
		look.Wait(t)
		<-c.answers
		staying := s.begin()
		<-c.answers
		leave()
		s.wantEvents(middleware.InFlight)
		<-gone
		s.awaitWaiting(b, 1) // the other one, which nobody looks for any more
		close(g.open)
		first.want(<-done, http.StatusCreated, middleware.Executed)
		s.want(<-staying, http.StatusCreated, middleware.Replayed)
		s.wantRuns(0)
		look.Lift()
	})
}

// looks matches what a waiter asks, on a connection on which nothing runs.
var looks = redistest.Named("EVALSHA", "EVAL")

// conformance: 24
func TestWaitIsOver(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		const d = 50 * time.Millisecond
		g := newGate()
		s := serve(t, b, behind(t, g, payOnce()), middleware.WithWait(d))
		done := s.inBackground(g)
		begun := time.Now()
		a := s.send()
		if waited := time.Since(begun); waited < d {
			t.Errorf("waited %v, want at least %v", waited, d)
		}
		s.wantRefused(a, http.StatusConflict, middleware.InFlight, "in-flight")
		age := int(time.Since(begun)/time.Second) + 1 // at most
		if got, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || got < 1 || got > age {
			t.Errorf("Retry-After %d, %v, want 1 to %d", got, err, age)
		}
		close(g.open)
		s.want(<-done, http.StatusCreated, middleware.Executed)
		s.want(s.send(), http.StatusCreated, middleware.Replayed)
		s.wantRuns(1)
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

// An operator frees the key during a run.
//
// conformance: 26
func TestForgetWhileWaiting(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		g := newGate()
		first, s := serveWaiting(t, b.Client(t), behind(t, g, payOnce())), serveWaiting(t, b.Client(t), payOnce())
		done := first.inBackground(g)
		waiting := s.begin()
		s.awaitWaiting(b, 1)
		info, err := first.locker.Inspect(t.Context(), first.locker.StorageKey("k"))
		if err != nil {
			t.Fatal(err)
		}
		if err := first.locker.Forget(t.Context(), info.Key, info.Token, lock.EvenIfLive()); err != nil {
			t.Fatal(err)
		}
		s.wantRefused(<-waiting, http.StatusServiceUnavailable, middleware.NotReplayable, "run-failed")
		s.wantRuns(0)
		s.want(s.send(), http.StatusCreated, middleware.Executed)
		close(g.open)
		first.want(<-done, http.StatusCreated, middleware.LeaseLost)
		s.want(s.send(), http.StatusCreated, middleware.Replayed)
	})
}

// With WithAtMostOnce a waiter gets a stored 5xx, and an unknown outcome does not run again.
func TestAtMostOnceWhileWaiting(t *testing.T) {
	for name, test := range map[string]struct {
		end    http.HandlerFunc
		lapse  bool
		first  middleware.Outcome
		waiter func(s *site, a answer)
	}{
		"failure": {
			end:   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
			first: middleware.Executed,
			waiter: func(s *site, a answer) {
				s.want(a, http.StatusBadGateway, middleware.Replayed)
				s.want(s.send(), http.StatusBadGateway, middleware.Replayed)
			},
		},
		"panic": {
			end:   func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			lapse: true, first: middleware.Panicked,
			waiter: func(s *site, a answer) {
				s.wantRefused(a, http.StatusConflict, middleware.OutcomeUnknown, "outcome-unknown")
				s.wantRefused(s.send(), http.StatusConflict, middleware.OutcomeUnknown, "outcome-unknown")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				g := newGate()
				first := serveWaiting(t, b.Client(t), behind(t, g, test.end), middleware.WithAtMostOnce())
				s := serveWaiting(t, b.Client(t), payOnce()) // the claim itself says which it is
				done := first.begin(noRetry)
				<-g.entered
				waiting := s.begin()
				s.awaitWaiting(b, 1)
				close(g.open)
				<-done
				first.wantEvents(test.first)
				if test.lapse {
					b.Elapse(t, leaseTTL)
				}
				test.waiter(s, <-waiting)
				s.wantRuns(0)
			})
		})
	}
}

// The first response was sent before it was stored: one that can be replayed, and one that cannot.
//
// conformance: 47
func TestWaitForAStream(t *testing.T) {
	for name, test := range map[string]struct {
		before, after int // bytes
		first         middleware.Outcome
	}{
		"too long":           {0, 11, middleware.NotStored},
		"too long a stream":  {5, 6, middleware.NotStored},
		"a stream in limits": {5, 5, middleware.Executed},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				g := newGate()
				first := serveWaiting(t, b.Client(t), func(w http.ResponseWriter, _ *http.Request) {
					if test.before > 0 {
						w.WriteHeader(http.StatusAccepted)
						_, _ = io.WriteString(w, strings.Repeat("x", test.before))
						w.(http.Flusher).Flush()
					}
					g.pass()
					if test.before == 0 {
						w.WriteHeader(http.StatusAccepted)
					}
					_, _ = io.WriteString(w, strings.Repeat("x", test.after))
				}, middleware.WithMaxResponse(10))
				s := serveWaiting(t, b.Client(t), payOnce())
				done := first.inBackground(g)
				waiting := s.begin()
				s.awaitWaiting(b, 1)
				close(g.open)
				want := <-done
				first.want(want, http.StatusAccepted, test.first)
				a := <-waiting
				if test.first == middleware.Executed {
					s.want(a, http.StatusAccepted, middleware.Replayed)
					if a.body != want.body {
						t.Errorf("replay %q, want %q", a.body, want.body)
					}
				} else {
					s.wantRefused(a, http.StatusConflict, middleware.NotReplayable, "response-not-stored")
					if !strings.Contains(a.body, `"original_status":202`) {
						t.Errorf("without the original status: %s", a.body)
					}
				}
				s.wantRuns(0)
			})
		})
	}
}

// A run that fails in the middle of a stream must not be repeated, and its waiter is not told that it was processed.
func TestWaitForAStreamThatFails(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		g := newGate()
		first := serveWaiting(t, b.Client(t), func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			g.pass()
			panic(http.ErrAbortHandler)
		})
		s := serveWaiting(t, b.Client(t), payOnce())
		done := first.begin(noRetry)
		<-g.entered
		waiting := s.begin()
		s.awaitWaiting(b, 1)
		close(g.open)
		<-done
		first.wantEvents(middleware.Panicked)
		a := <-waiting
		s.wantRefused(a, http.StatusConflict, middleware.OutcomeUnknown, "response-not-stored")
		wantUnknownNotStored(t, a)
		s.wantRuns(0)
	})
}

// conformance: 27
func TestAnotherRequestDoesNotWait(t *testing.T) {
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	both(t, func(t *testing.T, b redistest.Backend) {
		g := newGate()
		p := redistest.NewProxy(t, b.Addr())
		first, s := serveWaiting(t, b.Client(t), behind(t, g, payOnce())), serveWaiting(t, p.Client(t), payOnce())
		done := first.inBackground(g)
		for name, edits := range others {
			a := s.send(edits...) // while the first one runs
			s.wantRefused(a, http.StatusUnprocessableEntity, middleware.Reused, "key-reused")
			if t.Failed() {
				t.Fatal(name)
			}
		}
		if got := p.Commands(); slices.ContainsFunc(got, func(name string) bool { return name != "SET" }) {
			t.Errorf("commands %q, want nothing but claims", got)
		}
		close(g.open)
		first.want(<-done, http.StatusCreated, middleware.Executed)
		s.wantRuns(0)
	})
}

// During a wait the key becomes free and is used for another request, which the waiter does not notice. The waiter must not
// get that request's response, nor anything else of it.
//
// conformance: 27, 29
func TestKeyIsReusedWhileWaiting(t *testing.T) {
	other := body("application/json", `{"amount":9}`)
	panics := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for name, test := range map[string]struct {
		handler http.HandlerFunc // of the other request
		met     bool             // the waiter sees it running, and goes on waiting
		lapse   bool
		first   middleware.Outcome
		opts    []middleware.Option
	}{
		"stored":  {handler: payOnce(), first: middleware.Executed},
		"running": {handler: payOnce(), met: true, first: middleware.Executed},
		"too long": {
			handler: payOnce(), first: middleware.NotStored, opts: []middleware.Option{middleware.WithMaxResponse(0)},
		},
		"unknown": {
			handler: panics, lapse: true, first: middleware.Panicked, opts: []middleware.Option{middleware.WithAtMostOnce()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				p := redistest.NewProxy(t, b.Addr())
				g, g2 := newGate(), newGate()
				first := serveWaiting(t, b.Client(t), behind(t, g, func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusInternalServerError)
				}))
				second := serveWaiting(t, b.Client(t), behind(t, g2, test.handler), test.opts...)
				s := serveWaiting(t, p.Client(t), payOnce())
				done := first.inBackground(g)
				waiting := s.begin()
				s.awaitWaiting(b, 1)

				look := p.HoldRequest(looks)
				look.Wait(t)
				close(g.open)
				first.want(<-done, http.StatusInternalServerError, middleware.Freed)
				done = second.begin(other, noRetry)
				<-g2.entered
				if test.met {
					next := p.HoldRequest(looks)
					look.Lift()
					next.Wait(t) // it has seen that the key is held
					next.Lift()
				}
				close(g2.open)
				<-done
				second.wantEvents(test.first)
				if test.lapse {
					b.Elapse(t, leaseTTL)
				}
				look.Lift()
				s.wantRefused(<-waiting, http.StatusUnprocessableEntity, middleware.Reused, "key-reused")
				s.wantRuns(0)
			})
		})
	}
}

// A waiter does not run its request because Redis is down: another process may be running it.
func TestRedisGoesDownWhileWaiting(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*redistest.Proxy){
		"silent": (*redistest.Proxy).BlackHole,
		"gone":   func(p *redistest.Proxy) { p.CutBefore(redistest.Any()) },
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				p := redistest.NewProxy(t, b.Addr())
				g := newGate()
				first := serveWaiting(t, b.Client(t), behind(t, g, payOnce()))
				done := first.inBackground(g)
				waiters := make([]*site, 2)
				answers := make([]<-chan answer, len(waiters))
				for i, opts := range [][]middleware.Option{{}, {middleware.WithFailOpen()}} {
					opts = append(opts, middleware.WithWait(10*time.Second))
					client := p.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
					locker := newLocker(t, client, lock.WithOpTimeout(3*time.Second))
					waiters[i] = serveWaitingOn(t, locker, payOnce(), opts...)
					answers[i] = waiters[i].begin()
				}
				first.awaitWaiting(b, int64(len(waiters)))
				away(p)
				for i, s := range waiters {
					a := <-answers[i]
					if e := s.wantRefused(a, http.StatusConflict, middleware.InFlight, "in-flight"); e.Err == nil {
						t.Error("no error in the Event")
					}
					s.wantRuns(0)
				}
				close(g.open)
				first.want(<-done, http.StatusCreated, middleware.Executed)
				first.want(first.send(), http.StatusCreated, middleware.Replayed)
			})
		})
	}
}

// A broken connection does not end a wait.
func TestConnectionsBreakWhileWaiting(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		p := redistest.NewProxy(t, b.Addr())
		g := newGate()
		first, s := serveWaiting(t, b.Client(t), behind(t, g, payOnce())), serveWaiting(t, p.Client(t), payOnce())
		done := first.inBackground(g)
		waiting := s.begin()
		for range 3 {
			s.awaitWaiting(b, 1)
			p.Cut()
		}
		close(g.open)
		first.want(<-done, http.StatusCreated, middleware.Executed)
		s.want(<-waiting, http.StatusCreated, middleware.Replayed)
		s.wantRuns(0)
	})
}

func TestLockerIsClosedWhileWaiting(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		g := newGate()
		first := serveWaiting(t, b.Client(t), behind(t, g, payOnce()))
		s := serveWaiting(t, b.Client(t), payOnce(), middleware.WithFailOpen())
		done := first.inBackground(g)
		waiting := s.begin()
		s.awaitWaiting(b, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := s.locker.Close(ctx); err != nil {
			t.Error(err)
		}
		s.wantRefused(<-waiting, http.StatusServiceUnavailable, middleware.StoreUnavailable, "store-unavailable")
		s.wantRuns(0)
		close(g.open)
		first.want(<-done, http.StatusCreated, middleware.Executed)
	})
}

// During a wait the key gets a value that cannot be read.
func TestUnreadableWhileWaiting(t *testing.T) {
	set := func(value string) func(redis.Pipeliner, string) {
		return func(p redis.Pipeliner, key string) { p.Set(context.Background(), key, value, time.Hour) }
	}
	for name, put := range map[string]func(p redis.Pipeliner, key string){
		"foreign": set("what else"),
		"newer":   set("OGv\x02" + strings.Repeat("x", 50)),
		"damaged": set("OGv\x01" + strings.Repeat("x", 50)),
		"a hash": func(p redis.Pipeliner, key string) {
			p.Del(context.Background(), key)
			p.HSet(context.Background(), key, "a", "b")
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				g := newGate()
				first := serveWaiting(t, b.Client(t), behind(t, g, payOnce()))
				s := serveWaiting(t, b.Client(t), payOnce(), middleware.WithFailOpen())
				done := first.inBackground(g)
				waiting := s.begin()
				s.awaitWaiting(b, 1)
				_, err := b.Client(t).TxPipelined(t.Context(), func(p redis.Pipeliner) error {
					put(p, s.locker.StorageKey("k"))
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				e := s.wantRefused(<-waiting, http.StatusInternalServerError, middleware.Unreadable, "record-unreadable")
				if e.Err == nil {
					t.Error("the event has no error")
				}
				s.wantRuns(0)
				close(g.open)
				first.wantRefused(<-done, http.StatusInternalServerError, middleware.LeaseLost, "record-unreadable")
			})
		})
	}
}

// The waiter's own request ends before its wait, or has ended before that begins.
func TestWaitEndsWithTheRequest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit func(context.Context) (context.Context, context.CancelFunc)
		after int // the wait ends after that many seconds
	}{
		"outer deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 5*time.Second) // long enough for the claim
		}, 4},
		"client gone": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				g := newGate()
				first, s := serveWaiting(t, b.Client(t), behind(t, g, payOnce())), serveWaiting(t, b.Client(t), payOnce())
				s.outer = func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						ctx, cancel := test.limit(r.Context())
						defer cancel()
						next.ServeHTTP(w, r.WithContext(ctx))
					})
				}
				begun := time.Now()
				done := first.inBackground(g)
				a := s.send()
				s.wantRefused(a, http.StatusConflict, middleware.InFlight, "in-flight")
				most := max(1, int(time.Since(begun)/time.Second))
				if n, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || n < max(1, test.after) || n > most {
					t.Errorf("Retry-After %q, want the age of the run, at most %d", a.header.Get("Retry-After"), most)
				}
				s.wantRuns(0)
				close(g.open)
				first.want(<-done, http.StatusCreated, middleware.Executed)
			})
		})
	}
}

func TestWaitForEncrypted(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		g := newGate()
		encrypted := middleware.WithEncryption(master(2), master(1))
		first := serveWaiting(t, b.Client(t), behind(t, g, payOnce()), middleware.WithEncryption(master(1)))
		s := serveWaiting(t, b.Client(t), payOnce(), encrypted)
		blind := serveWaiting(t, b.Client(t), payOnce(), middleware.WithEncryption(master(3)))
		done := first.inBackground(g)
		waiting := s.begin()
		s.awaitWaiting(b, 1)
		s.wantRefused(s.send(body("text/plain", "other")), http.StatusUnprocessableEntity, middleware.Reused, "key-reused")
		blind.wantRefused(blind.send(), http.StatusInternalServerError, middleware.Unreadable, "record-unreadable")
		close(g.open)
		want := <-done
		first.want(want, http.StatusCreated, middleware.Executed)
		a := <-waiting
		s.want(a, http.StatusCreated, middleware.Replayed)
		if a.body != want.body {
			t.Errorf("replay %q, want %q", a.body, want.body)
		}
		s.wantRuns(0)
		blind.wantRuns(0)
	})
}

func TestWithWaitPanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if got, _ := recover().(string); !strings.HasPrefix(got, "middleware.WithWait") {
			t.Errorf("panic %q, want one that names the option", got)
		}
	}()
	middleware.WithWait(-1)
}

// WithWait(0) is the default: nothing subscribes.
func TestNoWait(t *testing.T) {
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	both(t, func(t *testing.T, b redistest.Backend) {
		g := newGate()
		p := redistest.NewProxy(t, b.Addr())
		s := serveWaiting(t, p.Client(t), behind(t, g, payOnce()), middleware.WithWait(0))
		done := s.inBackground(g)
		p.Reset()
		s.wantRefused(s.send(), http.StatusConflict, middleware.InFlight, "in-flight")
		if got := p.Commands(); len(got) != 1 {
			t.Errorf("commands %q, want one", got)
		}
		close(g.open)
		s.want(<-done, http.StatusCreated, middleware.Executed)
	})
}

// Sixty requests for one key at the same time, with a handler of one second: the commands that they take, and how soon all
// are answered.
func TestCostOfWaiting(t *testing.T) {
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	both(t, func(t *testing.T, b redistest.Backend) {
		const requests, most = 60, 150
		p := redistest.NewProxy(t, b.Addr())
		s := serveOn(t, newLocker(t, p.Client(t)), func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second) // it works
			payOnce()(w, r)
		}, middleware.WithWait(10*time.Second))
		type end struct {
			answer
			at  time.Time
			err error
		}
		ends := make(chan end, requests)
		for range requests {
			r := s.request()
			go func() {
				a, err := s.try(r)
				ends <- end{a, time.Now(), err}
			}()
		}
		first := (<-ends).at
		var last end
		for range requests - 1 {
			last = <-ends
			if last.err != nil || last.status != http.StatusCreated {
				t.Errorf("%+v, want 201", last)
			}
		}
		commands := p.Commands()
		t.Logf("%d commands, the last one %v after the first (on a quiet machine: within 100 ms)", len(commands), last.at.Sub(first))
		if len(commands) >= most {
			t.Errorf("%d commands %v, want less than %d", len(commands), tally(commands), most)
		}
		s.wantEvents(append(slices.Repeat([]middleware.Outcome{middleware.Replayed}, requests-1), middleware.Executed)...)
		s.wantRuns(1)
	})
}

func tally(names []string) string {
	counts := map[string]int{}
	for _, name := range names {
		counts[name]++
	}
	return fmt.Sprint(counts)
}
