package clienttest_test

import (
	"context"
	"fmt"
	"io"
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

const (
	lease    = time.Minute
	patience = 15 * time.Second // with one operation
)

// ledger counts the effects of each order.
type ledger struct {
	mu     sync.Mutex
	orders map[string]int
}

func (l *ledger) place(order string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.orders == nil {
		l.orders = map[string]int{}
	}
	l.orders[order]++
	return len(l.orders)
}

func (l *ledger) handle(w http.ResponseWriter, r *http.Request) {
	order, _ := io.ReadAll(r.Body)
	n := l.place(string(order))
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "%s is number %d", order, n)
}

// guarded starts a server whose handler runs within the middleware.
func guarded(t *testing.T, locker *lock.Locker, handler http.HandlerFunc, opts ...middleware.Option) *httptest.Server {
	t.Helper()
	opts = append([]middleware.Option{middleware.WithRequired()}, opts...)
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()), opts...)
	server := httptest.NewUnstartedServer(once(handler))
	server.Config.ErrorLog = discard()
	server.Start()
	t.Cleanup(server.Close)
	return server
}

// newLocker returns a Locker that a busy machine does not make give up an operation: the claim of one stays for a lease,
// and on miniredis for ever.
func newLocker(t *testing.T, b redistest.Backend, opts ...lock.Option) *lock.Locker {
	t.Helper()
	slow := func(o *redis.Options) { o.DialTimeout, o.ReadTimeout, o.WriteTimeout = patience, patience, patience }
	locker := lock.New(b.Client(t, slow), "shop", append([]lock.Option{lock.WithTTL(lease), lock.WithOpTimeout(patience)}, opts...)...)
	t.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return locker
}

// await waits for c, or for the end of a test that has failed.
func await(t *testing.T, c <-chan struct{}) {
	select {
	case <-c:
	case <-t.Context().Done():
	}
}

// Every third response is lost, whole or in its header, and each order is placed exactly once.
func TestEveryThirdResponseIsLost(t *testing.T) {
	t.Parallel()
	modes := map[string][]middleware.Option{
		"default": nil,
		"money":   {middleware.WithAtMostOnce(), middleware.WithWait(10 * time.Second)},
	}
	for name, opts := range modes {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				t.Parallel()
				var l ledger
				server := guarded(t, newLocker(t, b), l.handle, opts...)
				proxy, url := newLossyProxy(t, server.Listener.Addr().String(), func(n int) loss {
					switch n % 6 {
					case 2:
						return whole
					case 5:
						return inTheHead
					}
					return none
				})
				orders := placeAll(t, newClient(t), url, 8, redistest.Rounds(25, 250))
				checkLedger(t, &l, orders)
				if proxy.lost < orders/3 {
					t.Errorf("%d of %d responses were lost", proxy.lost, proxy.n)
				}
			})
		})
	}
}

// placeAll places orders from several goroutines, and checks each response. It returns their number.
func placeAll(t *testing.T, client *http.Client, url string, goroutines, each int) int {
	t.Helper()
	var running sync.WaitGroup
	for g := range goroutines {
		running.Go(func() {
			for i := range each {
				order := fmt.Sprintf("order %d of %d", i, g)
				resp, body, err := do(t, client, post(t, t.Context(), url+"/orders", strings.NewReader(order)))
				if err != nil || resp.StatusCode != http.StatusCreated || !strings.HasPrefix(body, order+" is number ") {
					t.Errorf("%s: got %v, %q, %v", order, resp, body, err)
				}
			}
		})
	}
	running.Wait()
	return goroutines * each
}

func checkLedger(t *testing.T, l *ledger, orders int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.orders) != orders {
		t.Errorf("%d orders were placed, want %d", len(l.orders), orders)
	}
	for order, n := range l.orders {
		if n != 1 {
			t.Errorf("%s was placed %d times", order, n)
		}
	}
}

// The connection breaks while the first request runs: the second try meets it, in the default mode by 409 in-flight and
// with WithWait by waiting, and gets its response.
func TestResponseLostWhileTheRequestRuns(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]middleware.Option{"409": nil, "wait": {middleware.WithWait(10 * time.Second)}} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				t.Parallel()
				var l ledger
				begun, goOn := make(chan struct{}), make(chan struct{})
				server := guarded(t, newLocker(t, b), func(w http.ResponseWriter, r *http.Request) {
					close(begun)
					await(t, goOn)
					l.handle(w, r)
				}, opts...)
				_, url := newLossyProxy(t, server.Listener.Addr().String(), func(n int) loss {
					if n == 1 {
						await(t, begun) // or else the second request might run, and meet nobody
						return whileItRuns
					}
					if name == "wait" {
						close(goOn) // the second request has been sent
					}
					return none
				})
				var seen []onceclient.Attempt
				client := newClient(t, onceclient.WithObserver(func(_ context.Context, a onceclient.Attempt) {
					if a.Problem == onceclient.InFlight && len(seen) == 1 {
						close(goOn)
					}
					seen = append(seen, a)
				}))
				if _, body, err := do(t, client, post(t, t.Context(), url, strings.NewReader("book"))); err != nil || body != "book is number 1" {
					t.Errorf("got %q, %v", body, err)
				}
				checkLedger(t, &l, 1)
				if name == "409" && (len(seen) != 3 || seen[1].Status != 409 || seen[1].Pause < time.Second) {
					t.Errorf("the tries were %+v", seen)
				}
			})
		})
	}
}

// The run dies, and its key stays taken until the lease has run out. The client asks until then.
func TestKilledRun(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]middleware.Option{"default": nil, "at most once": {middleware.WithAtMostOnce()}} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				t.Parallel()
				var l ledger
				runs := 0
				server := guarded(t, newLocker(t, b), func(w http.ResponseWriter, r *http.Request) {
					if runs++; runs == 1 {
						panic(http.ErrAbortHandler)
					}
					l.handle(w, r)
				}, opts...)
				inFlight := 0
				client := newClient(t, onceclient.WithObserver(func(_ context.Context, a onceclient.Attempt) {
					if a.Problem == onceclient.InFlight {
						if inFlight++; inFlight == 2 {
							b.Elapse(t, lease)
						}
					}
				}))
				resp, body, err := do(t, client, post(t, t.Context(), server.URL, strings.NewReader("book")))
				switch {
				case err != nil:
					t.Error(err)
				case name == "default" && (resp.StatusCode != 201 || runs != 2):
					t.Errorf("got %d after %d runs, want a second run", resp.StatusCode, runs)
				case name != "default" && (resp.StatusCode != 409 || runs != 1 || !strings.Contains(body, onceclient.OutcomeUnknown)):
					t.Errorf("got %d %q after %d runs, want outcome-unknown", resp.StatusCode, body, runs)
				}
				if inFlight < 2 {
					t.Errorf("%d times in flight", inFlight)
				}
			})
		})
	}
}

// As TestKilledRun, with a lease that really runs out after 10 s, and the client's defaults.
func TestKilledRunInRealTime(t *testing.T) {
	t.Parallel()
	redistest.Long(t)
	server := redistest.Start(t)
	var l ledger
	runs := 0
	site := guarded(t, newLocker(t, server, lock.WithTTL(10*time.Second), lock.WithOpTimeout(500*time.Millisecond)), func(w http.ResponseWriter, r *http.Request) {
		if runs++; runs == 1 {
			panic(http.ErrAbortHandler)
		}
		l.handle(w, r)
	})
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	began := time.Now()
	_, body, err := do(t, &http.Client{Transport: onceclient.New(base)}, post(t, t.Context(), site.URL, strings.NewReader("book")))
	if took := time.Since(began); err != nil || body != "book is number 1" || runs != 2 || took < 9*time.Second {
		t.Errorf("got %q, %v after %d runs and %v", body, err, runs, took)
	}
}

// The body of the final response breaks off: the client sends the request again. If it streams the body, its caller
// does, with the same key.
func TestBodyBreaksOff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sends int
		opts  []onceclient.Option
	}{"within the try": {sends: 1}, "streamed": {3, []onceclient.Option{onceclient.WithMaxResponse(0)}}} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				t.Parallel()
				var l ledger
				server := guarded(t, newLocker(t, b), l.handle)
				_, url := newLossyProxy(t, server.Listener.Addr().String(), func(n int) loss {
					if n <= 2 {
						return inTheBody
					}
					return none
				})
				client, ctx := newClient(t, test.opts...), onceclient.WithKey(t.Context(), onceclient.NewKey())
				for n := 1; n <= test.sends; n++ {
					resp, err := client.Do(post(t, ctx, url, strings.NewReader("book")))
					if err != nil {
						t.Fatal(err)
					}
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if whole := err == nil && string(body) == "book is number 1"; whole != (n == test.sends) {
						t.Errorf("send %d: got %q, %v", n, body, err)
					}
				}
				checkLedger(t, &l, 1)
			})
		})
	}
}

// A client that gave up asks again with the key of the error, and gets the response of the run that it had left.
func TestAskAgainAfterGivingUp(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		var l ledger
		goOn := make(chan struct{})
		server := guarded(t, newLocker(t, b), func(w http.ResponseWriter, r *http.Request) {
			await(t, goOn)
			l.handle(w, r)
		}, middleware.WithWait(10*time.Second))
		client := newClient(t, onceclient.WithLimit(100*time.Millisecond))
		_, _, err := do(t, client, post(t, t.Context(), server.URL, strings.NewReader("book")))
		e := gaveUp(t, err)
		if !e.Timeout() {
			t.Errorf("got %v", err)
		}
		close(goOn)
		ctx := onceclient.WithKey(t.Context(), e.Key)
		if _, body, err := do(t, newClient(t), post(t, ctx, server.URL, strings.NewReader("book"))); err != nil || body != "book is number 1" {
			t.Errorf("got %q, %v", body, err)
		}
		checkLedger(t, &l, 1)
	})
}

// Redis is away and comes back: 503 store-unavailable until then.
func TestStoreComesBack(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		proxy := redistest.NewProxy(t, b.Addr())
		locker := lock.New(proxy.Client(t), "shop")
		t.Cleanup(func() { _ = locker.Close(context.Background()) })
		var l ledger
		server := guarded(t, locker, l.handle)
		proxy.BlackHole()
		refused := 0
		client := newClient(t, onceclient.WithObserver(func(_ context.Context, a onceclient.Attempt) {
			if a.Status == 503 {
				if refused++; refused == 2 {
					proxy.Heal()
				}
			}
			if a.Problem == onceclient.InFlight { // on a busy machine, a claim whose reply came too late
				b.Elapse(t, time.Minute)
			}
		}))
		if _, body, err := do(t, client, post(t, t.Context(), server.URL, strings.NewReader("book"))); err != nil || body != "book is number 1" {
			t.Errorf("got %q, %v", body, err)
		}
		checkLedger(t, &l, 1)
	})
}
