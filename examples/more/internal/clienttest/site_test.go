// Package clienttest tests onceclient, and the recipes of docs/clients.md, against the middleware. It is here so that the
// go.sum of a client has no go-redis.
package clienttest

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/onceclient"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// loss is what happens to a response.
type loss int

const (
	none      loss = iota
	whole          // the connection closes instead
	inTheHead      // it closes within the header
	inTheBody      // it closes within the body
)

// site is a server that places orders, each within the middleware, and loses responses.
type site struct {
	*httptest.Server
	lose func(n int) loss // of the nth response, from 1; nil loses none

	mu        sync.Mutex
	orders    map[string]int // how often each was placed
	responses int
	runs      int
	panics    bool // the first run dies
}

func newSite(t *testing.T, b redistest.Backend, opts ...middleware.Option) *site {
	t.Helper()
	slow := func(o *redis.Options) {
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = time.Minute, time.Minute, time.Minute
	}
	locker := lock.New(b.Client(t, slow), "shop", lock.WithTTL(lease), lock.WithOpTimeout(lease))
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()), append(opts, middleware.WithRequired())...)
	s := &site{orders: map[string]int{}}
	s.Server = httptest.NewUnstartedServer(s.lossy(once(http.HandlerFunc(s.place))))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(func() {
		s.Close()
		if err := locker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

const lease = time.Minute

func (s *site) place(w http.ResponseWriter, r *http.Request) {
	order, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs++; s.panics && s.runs == 1 {
		panic(http.ErrAbortHandler)
	}
	s.orders[string(order)]++
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "%s is number %d", order, len(s.orders))
}

// lossy loses responses of next.
func (s *site) lossy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		s.mu.Lock()
		s.responses++
		lost := none
		if s.lose != nil {
			lost = s.lose(s.responses)
		}
		s.mu.Unlock()
		body := answer.Body.Bytes()
		switch lost {
		case whole:
			panic(http.ErrAbortHandler)
		case inTheHead:
			if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 201 Created")
				conn.Close()
			}
			return
		case inTheBody:
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			body = body[:len(body)-1] // after which the server closes the connection
		}
		for name := range answer.Header() {
			w.Header().Set(name, answer.Header().Get(name))
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body)
	})
}

// wantOrders checks that there are so many orders, each placed once.
func (s *site) wantOrders(t *testing.T, want int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.orders) != want {
		t.Errorf("%d orders were placed, want %d", len(s.orders), want)
	}
	for order, n := range s.orders {
		if n != 1 {
			t.Errorf("%s was placed %d times", order, n)
		}
	}
}

// newClient returns a client over a connection pool of its own, with short pauses.
func newClient(t *testing.T, opts ...onceclient.Option) *http.Client {
	t.Helper()
	opts = append(opts, onceclient.WithBackoff(time.Millisecond, 5*time.Millisecond))
	client := &http.Client{Transport: onceclient.New(&http.Transport{}, opts...)}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func post(t *testing.T, client *http.Client, url, order string) (status int, body string) {
	t.Helper()
	res, err := client.Post(url, "text/plain", strings.NewReader(order))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return res.StatusCode, string(text)
}

// Every third response is lost, whole or in its header, and each order is placed exactly once.
func TestEveryThirdResponseIsLost(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]middleware.Option{
		"default": nil,
		"money":   {middleware.WithAtMostOnce(), middleware.WithWait(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				t.Parallel()
				s, client := newSite(t, b, opts...), newClient(t)
				s.lose = func(n int) loss { return []loss{none, none, whole, none, none, inTheHead}[n%6] }
				var customers sync.WaitGroup
				each := redistest.Rounds(25, 250)
				for c := range 8 {
					customers.Go(func() {
						for i := range each {
							order := fmt.Sprintf("order %d of %d", i, c)
							if status, body := post(t, client, s.URL, order); status != 201 || !strings.HasPrefix(body, order+" is number ") {
								t.Errorf("%s: got %d %q", order, status, body)
							}
						}
					})
				}
				customers.Wait()
				s.wantOrders(t, 8*each)
			})
		})
	}
}

// The run dies, and its key stays taken until the lease has run out. The client asks until then.
func TestKilledRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts         []middleware.Option
		status, runs int
	}{
		"default":      {nil, 201, 2},
		"at most once": {[]middleware.Option{middleware.WithAtMostOnce()}, 409, 1},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				t.Parallel()
				s, inFlight := newSite(t, b, c.opts...), 0
				s.panics = true
				client := newClient(t, onceclient.WithObserver(func(_ context.Context, a onceclient.Attempt) {
					if a.Problem == "urn:onceguard:problem:in-flight" {
						if inFlight++; inFlight == 2 {
							b.Elapse(t, lease)
						}
					}
				}))
				status, body := post(t, client, s.URL, "book")
				if status != c.status || s.runs != c.runs || inFlight < 2 {
					t.Errorf("got %d %q after %d runs and %d times in flight; want %d after %d", status, body, s.runs, inFlight, c.status, c.runs)
				}
			})
		})
	}
}
