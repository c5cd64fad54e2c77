package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// slowBody is a body that comes a moment later.
type slowBody struct {
	io.Reader
	takes time.Duration
}

func (b *slowBody) Read(p []byte) (int, error) {
	time.Sleep(b.takes)
	b.takes = 0
	return b.Reader.Read(p)
}

// A wait ends early enough for its answer to be sent, counted from when the request came, before its body.
func TestWaitEndsInTime(t *testing.T) {
	t.Parallel()
	const seconds = time.Second
	for name, test := range map[string]struct {
		wait, body             time.Duration // the body takes so long to come
		writeTimeout, deadline time.Duration // 0: none
		want                   time.Duration // from when the request came
	}{
		"nothing but its own time":          {wait: 30 * seconds, want: 30 * seconds},
		"its own time is its own":           {wait: 30 * seconds, body: 3 * seconds, want: 33 * seconds},
		"a tenth before the timeout":        {wait: 30 * seconds, writeTimeout: 2 * seconds, want: 1800 * time.Millisecond},
		"half a second before the timeout":  {wait: 30 * seconds, writeTimeout: 20 * seconds, want: 19500 * time.Millisecond},
		"the body counts":                   {wait: 30 * seconds, body: 3 * seconds, writeTimeout: 20 * seconds, want: 19500 * time.Millisecond},
		"a tenth before the deadline":       {wait: 30 * seconds, deadline: 3 * seconds, want: 2700 * time.Millisecond},
		"half a second before the deadline": {wait: 30 * seconds, body: 3 * seconds, deadline: 20 * seconds, want: 19500 * time.Millisecond},
		"timeout before deadline":           {wait: 30 * seconds, writeTimeout: 10 * seconds, deadline: 20 * seconds, want: 9500 * time.Millisecond},
		"deadline before timeout":           {wait: 30 * seconds, writeTimeout: 20 * seconds, deadline: 10 * seconds, want: 9500 * time.Millisecond},
		"its own time before both":          {wait: 1 * seconds, writeTimeout: 20 * seconds, deadline: 10 * seconds, want: 1 * seconds},
		"over before it begins":             {wait: 30 * seconds, body: 4800 * time.Millisecond, writeTimeout: 5 * seconds, want: 4800 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &canned{claim: []byte(absent)}
				key := func(*http.Request) (string, error) { return "k", nil }
				protected := middleware.Idempotency(store.locker(t), key, middleware.WithWait(test.wait))(
					http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				send := func(ctx context.Context, body io.Reader) *httptest.ResponseRecorder {
					w := httptest.NewRecorder()
					protected.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", body))
					return w
				}
				send(t.Context(), strings.NewReader("x"))
				store.claim = bulk(store.claimed) // it runs, and nobody hears of its end

				ctx := t.Context()
				if test.deadline > 0 {
					withDeadline, cancel := context.WithTimeout(ctx, test.deadline)
					defer cancel()
					ctx = withDeadline
				}
				ctx = context.WithValue(ctx, http.ServerContextKey, &http.Server{WriteTimeout: test.writeTimeout})
				came := time.Now()
				w := send(ctx, &slowBody{strings.NewReader("x"), test.body})
				if took := time.Since(came); w.Code != http.StatusConflict || took != test.want {
					t.Errorf("%d after %v, want 409 after %v", w.Code, took, test.want)
				}
			})
		})
	}
}

// longestStop returns the longest time for which this process did not run while do did.
func longestStop(do func()) time.Duration {
	done, result := make(chan struct{}), make(chan time.Duration)
	go func() {
		ticks := time.NewTicker(10 * time.Millisecond)
		defer ticks.Stop()
		longest := time.Duration(0)
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-ticks.C:
				longest = max(longest, time.Since(last))
			case <-done:
				result <- max(longest, time.Since(last))
				return
			}
		}
	}()
	do()
	close(done)
	return <-result
}

// A waiter is answered before the server's WriteTimeout closes its connection.
func TestWaiterIsAnsweredBeforeTheWriteTimeout(t *testing.T) {
	t.Parallel()
	b := redistest.Mini(t)
	g := newGate()
	first := serve(t, b, behind(t, g, payOnce()))
	done := first.inBackground(g)

	once := middleware.Idempotency(newLocker(t, b.Client(t)), keyfunc.Standard(keyfunc.BasicUser()), middleware.WithWait(time.Hour))
	server := httptest.NewUnstartedServer(once(payOnce()))
	server.Config.WriteTimeout = 5 * time.Second
	server.Start()
	defer server.Close()
	var a answer
	err := io.EOF
	// Half a second is left for the answer. A try in which the machine stopped for longer than half of that does not count.
	for stopped := time.Hour; errors.Is(err, io.EOF) && stopped > 250*time.Millisecond; {
		r := first.request(noRetry)
		r.URL.Host = server.Listener.Addr().String()
		stopped = longestStop(func() { a, err = first.try(r) })
	}
	if err != nil || a.problem() != "in-flight" {
		t.Errorf("%+v, %v, want in-flight", a, err)
	}
	close(g.open)
	first.want(<-done, http.StatusCreated, middleware.Executed)
}

// Beyond the limit, duplicates are answered at once; when waiters have left, others may wait.
func TestWithMaxWaiters(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		const most, more = 3, 2 // of one key
		g := newGate()
		s := serveWaiting(t, b.Client(t), behind(t, g, payOnce()), middleware.WithMaxWaiters(10*most))
		done := s.inBackground(g)
		crowd := func(ctx context.Context) (answers []<-chan answer) {
			for range most + more {
				answers = append(answers, s.begin(func(r *http.Request) { *r = *r.WithContext(ctx) }))
			}
			for range more {
				if e := s.event(); e.Outcome != middleware.InFlight || e.Err == nil {
					t.Errorf("%+v, want in-flight, and an error", e)
				}
			}
			return answers
		}
		ctx, leave := context.WithCancel(t.Context())
		crowd(ctx)
		leave()
		s.wantEvents(slices.Repeat([]middleware.Outcome{middleware.InFlight}, most)...)

		answers := crowd(t.Context())
		close(g.open)
		s.wantEvents(append(slices.Repeat([]middleware.Outcome{middleware.Replayed}, most), middleware.Executed)...)
		statuses := map[int]int{(<-done).status: 1}
		for _, a := range answers {
			statuses[(<-a).status]++
		}
		if statuses[http.StatusCreated] != most+1 || statuses[http.StatusConflict] != more {
			t.Errorf("statuses %v, want 201 for %d and 409 for %d", statuses, most+1, more)
		}
		s.wantRuns(1)
	})
}

func TestWithMaxWaitersPanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if got, _ := recover().(string); !strings.HasPrefix(got, "middleware.WithMaxWaiters") {
			t.Errorf("panic %q, want one that names the option", got)
		}
	}()
	middleware.WithMaxWaiters(0)
}

// Redis does not answer for a while, and every waiter still gets the response.
//
// conformance: 26
func TestWaitersOutlastASilentRedis(t *testing.T) {
	both(t, func(t *testing.T, b redistest.Backend) {
		const waiters = 20
		p := redistest.NewProxy(t, b.Addr())
		g, c := newGate(), claimed{make(chan struct{}, 100)}
		client := p.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
		client.AddHook(c)
		first := serveWaiting(t, b.Client(t), behind(t, g, payOnce()))
		s := serveWaitingOn(t, newLocker(t, client, lock.WithOpTimeout(4*time.Second),
			lock.WithRetry(lock.Retry{Max: 50 * time.Millisecond})), payOnce(), middleware.WithWait(time.Minute))
		done := first.inBackground(g)
		answers := make([]<-chan answer, waiters)
		for i := range answers {
			answers[i] = s.begin()
			<-c.answers
		}
		s.awaitWaiting(b, 1)

		lost := p.SwallowReply(looks)
		lost.Wait(t)
		lost.Wait(t) // there is one look at a time: the one before it has failed
		lost.Lift()
		close(g.open)
		first.want(<-done, http.StatusCreated, middleware.Executed)
		for _, a := range answers {
			s.want(<-a, http.StatusCreated, middleware.Replayed)
		}
		s.wantRuns(0)
	})
}

// A response that is not on enough replicas yet is not sent to a waiter; the problem says that its request was processed.
func TestWaitForAnUnconfirmedValue(t *testing.T) {
	t.Parallel()
	b := redistest.Start(t) // it has no replica
	g := newGate()
	first := serveWaiting(t, b.Client(t), behind(t, g, payOnce()))
	s := serveWaitingOn(t, newLocker(t, b.Client(t), lock.WithReplicas(1, time.Millisecond)), payOnce(),
		middleware.WithWait(4*time.Second))
	done := first.inBackground(g)
	waiting := s.begin()
	s.awaitWaiting(b, 1)
	close(g.open)
	first.want(<-done, http.StatusCreated, middleware.Executed)
	a := <-waiting
	e := s.wantRefused(a, http.StatusServiceUnavailable, middleware.StoreUnavailable, "store-unavailable")
	if got := a.detail(t); !strings.Contains(got, "was processed") {
		t.Errorf("detail %q, want that it was processed", got)
	}
	if !errors.Is(e.Err, lock.ErrSettled) || !errors.Is(e.Err, lock.ErrNotReplicated) {
		t.Errorf("error %v, want ErrSettled and ErrNotReplicated", e.Err)
	}
	s.wantRuns(0)
}
