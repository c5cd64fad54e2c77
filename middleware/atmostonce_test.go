package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

const leaseTTL = 10 * time.Second // lock's default

// wantUnknown checks that the request with the key k1 is not run: neither while its lease lasts, nor until its
// retention of 24 h is over.
func (s *site) wantUnknown(b redistest.Backend) {
	s.t.Helper()
	runs := s.runs.Load()
	a := s.send()
	s.want(a, http.StatusConflict, middleware.InFlight)
	b.Elapse(s.t, leaseTTL)
	for range 2 {
		a = s.send()
		s.want(a, http.StatusConflict, middleware.OutcomeUnknown)
		if got := a.problem(); got != "outcome-unknown" {
			s.t.Errorf("problem %q, want outcome-unknown", got)
		}
		s.want(s.send(body("text/plain", "other")), http.StatusUnprocessableEntity, middleware.Reused)
		b.Elapse(s.t, 11*time.Hour)
	}
	s.wantRuns(runs)
	b.Elapse(s.t, 2*time.Hour)
	_, _ = s.try(s.request(noRetry))
	s.event()
	s.wantRuns(runs + 1)
}

func TestAtMostOnceUnknownOutcomes(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"panic":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"silent": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"broken": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "3") },
		"said":   func(_ http.ResponseWriter, r *http.Request) { middleware.FromContext(r.Context()).Unknown() },
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b redistest.Backend) {
				s := serve(t, b, h, middleware.WithAtMostOnce(), middleware.WithMaxDuration(50*time.Millisecond))
				_, _ = s.try(s.request(noRetry)) // its connection may break
				if e := s.event(); e.Outcome != middleware.Unknown && e.Outcome != middleware.Panicked {
					t.Errorf("%+v, want unknown or panicked", e)
				}
				s.wantUnknown(b)
			})
		})
	}
}

// A run that hangs past its time is given up and not run again. If it answers later, that response counts.
func TestAtMostOnceLateAnswer(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		g := newGate()
		s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			g.pass()
			payOnce()(w, r)
		}, middleware.WithAtMostOnce(), middleware.WithMaxDuration(20*time.Millisecond))
		done := s.inBackground(g)
		b.Elapse(t, leaseTTL)
		s.want(s.send(), http.StatusConflict, middleware.OutcomeUnknown)
		close(g.open)
		s.want(<-done, http.StatusCreated, middleware.Executed)
		s.want(s.send(), http.StatusCreated, middleware.Replayed)
		s.wantRuns(1)
	})
}

// The response could not be stored, and this process gave up trying.
func TestAtMostOnceResponseIsNotStored(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		p := redistest.NewProxy(t, b.Addr())
		locker := newLocker(t, p.Client(t))
		s := serveOn(t, locker, payOnce(), middleware.WithAtMostOnce())
		cut := p.CutBefore(settles)
		if e := s.want(s.send(), http.StatusCreated, middleware.NotStored); e.Err == nil {
			t.Error("the event has no error")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := locker.Close(ctx); !errors.Is(err, lock.ErrGivenUp) { // this process stops trying
			t.Errorf("Close: %v, want ErrGivenUp", err)
		}
		cut.Lift()
		s = serve(t, b, payOnce(), middleware.WithAtMostOnce())
		s.wantUnknown(b)
	})
}

// conformance: 19
func TestAtMostOnceStoresFailures(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		for status, want := range map[int]middleware.Outcome{
			500: middleware.Replayed, 503: middleware.Replayed, 599: middleware.Replayed, 422: middleware.Replayed,
			429: middleware.Freed, 403: middleware.Freed,
		} {
			b.FlushAll(t)
			s := serve(t, b, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }, middleware.WithAtMostOnce())
			s.send()
			s.event()
			s.want(s.send(), status, want)
		}
		b.FlushAll(t)
		s := serve(t, b, func(w http.ResponseWriter, r *http.Request) {
			if err := middleware.FromContext(r.Context()).Discard(); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		}, middleware.WithAtMostOnce())
		for range 2 {
			s.want(s.send(), http.StatusServiceUnavailable, middleware.Freed)
		}
		s.wantRuns(2)
		if keys := b.Keys(t); len(keys) > 0 {
			t.Errorf("left: %q", keys)
		}
	})
}

// An instance without the option reads a claim as one with it does.
func TestAtMostOnceAmongOthers(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		careful := serve(t, b, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, middleware.WithAtMostOnce())
		other := serve(t, b, payOnce(), middleware.WithRetention(time.Minute))
		_, _ = careful.try(careful.request(noRetry))
		other.want(other.send(), http.StatusConflict, middleware.InFlight)
		b.Elapse(t, leaseTTL)
		other.want(other.send(), http.StatusConflict, middleware.OutcomeUnknown)
		other.wantRuns(0)
	})
}

// If the run does not begin, no key stays abandoned, although the claim has its hold from the first, and its release
// fails at first.
func TestAtMostOnceDoesNotBegin(t *testing.T) {
	sets := redistest.Named("SET")
	for name, test := range map[string]struct {
		fault  func(*redistest.Proxy) *redistest.Rule
		begins error // of the journal
	}{
		"the replies to the claim are lost": {func(p *redistest.Proxy) *redistest.Rule { return p.DropReply(sets) }, nil},
		"the claim does not arrive in time": {func(p *redistest.Proxy) *redistest.Rule { return p.HoldRequest(sets) }, nil},
		"the journal refuses":               {func(p *redistest.Proxy) *redistest.Rule { return p.CutBefore(scriptCommands) }, errDown},
	} {
		t.Run(name, func(t *testing.T) {
			if test.begins != nil {
				redistest.Since(t, "7.0", "SET with both NX and GET, so that only the release is a script,")
			}
			both(t, func(t *testing.T, b redistest.Backend) {
				p, j := redistest.NewProxy(t, b.Addr()), newJournal(true)
				s := serveOn(t, newLocker(t, p.Client(t), lock.WithOpTimeout(time.Second)), payOnce(),
					middleware.WithAtMostOnce(), middleware.WithJournal(j))
				j.setHooks(at("begin", map[bool]int{true: 2}[test.begins != nil]), nil)
				fault := test.fault(p)
				s.wantRefused(s.send(), http.StatusServiceUnavailable, middleware.StoreUnavailable, "store-unavailable")
				fault.Wait(t)
				fault.Lift()
				s.wantRuns(0)
				s.awaitFree(b)
				s.want(s.send(), http.StatusCreated, middleware.Executed)
			})
		})
	}
}

// The request's deadline passes while its claim is on its way.
func TestAtMostOnceDeadlinePasses(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		p, runs := redistest.NewProxy(t, b.Addr()), 0
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		replies := p.HoldReply(redistest.Named("SET"))
		go func() {
			<-ctx.Done()
			replies.Lift()
		}()
		once := middleware.Idempotency(newLocker(t, p.Client(t)), keyfunc.Standard(keyfunc.BasicUser()), middleware.WithAtMostOnce())
		w, s := httptest.NewRecorder(), &site{t: t, url: "http://test"}
		once(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ })).ServeHTTP(w, s.request().WithContext(ctx))
		if w.Code != http.StatusServiceUnavailable || runs != 0 || replies.Hits() == 0 {
			t.Errorf("%d, %d runs, %d replies were late; want 503 and no run", w.Code, runs, replies.Hits())
		}
		s.awaitFree(b)
	})
}

func TestAtMostOnceRoundTrips(t *testing.T) {
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	both(t, func(t *testing.T, b redistest.Backend) {
		p := redistest.NewProxy(t, b.Addr())
		g := newGate()
		locker := newLocker(t, p.Client(t), lock.WithTTL(time.Hour)) // no renewal is counted
		s := serveOn(t, locker, func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("slow") {
				g.pass()
			}
		}, middleware.WithAtMostOnce())
		slow := target("/payments?slow")
		done := s.inBackground(g, key("slow"), slow)
		s.send(key("slow"), slow)
		s.send(key("warm"))
		for _, test := range []struct {
			edits []edit
			want  int
		}{{[]edit{key("k2")}, 2}, {[]edit{key("slow"), slow}, 2}, {[]edit{key("warm")}, 1}} {
			p.Reset()
			s.send(test.edits...)
			if got := p.RoundTrips(); got != test.want {
				t.Errorf("%d round trips (%q), want %d", got, p.Commands(), test.want)
			}
		}
		close(g.open)
		<-done
	})
}

func TestAtMostOnceCannotFailOpen(t *testing.T) {
	t.Parallel()
	defer func() {
		if got, _ := recover().(string); !strings.HasPrefix(got, "middleware.WithAtMostOnce") {
			t.Errorf("panic %q, want one that names the option", got)
		}
	}()
	middleware.Idempotency(newLocker(t, redistest.Mini(t).Client(t)), keyfunc.Body(), middleware.WithAtMostOnce(), middleware.WithFailOpen())
}

// The process that runs the handler is killed in the middle of it.
func TestAtMostOnceProcessDies(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChildRunsForever$")
		child.Env = append(os.Environ(), "ONCEGUARD_CHILD_REDIS="+b.Addr())
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil || line != "in the handler\n" {
			t.Errorf("the child said %q, %v", line, err)
		}
		if err := child.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = child.Wait() // it was killed

		s := serve(t, b, payOnce(), middleware.WithAtMostOnce())
		s.wantUnknown(b)
	})
}

// TestChildRunsForever is the other process of TestAtMostOnceProcessDies.
func TestChildRunsForever(t *testing.T) {
	addr := os.Getenv("ONCEGUARD_CHILD_REDIS")
	if addr == "" {
		t.Skip("runs only as another test's child")
	}
	locker := newLocker(t, redis.NewClient(&redis.Options{Addr: addr}))
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()), middleware.WithAtMostOnce())
	s := &site{t: t, url: "http://test"}
	once(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		fmt.Println("in the handler")
		select {}
	})).ServeHTTP(httptest.NewRecorder(), s.request())
}
