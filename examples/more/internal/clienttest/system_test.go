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
