package oncetest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/oncetest"
)

// The tests wait more than they compute, so that more of them run at once than there are cores.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// recorder is a testing.TB that takes failures down.
type recorder struct {
	testing.TB
	mu    sync.Mutex
	fails []string
	lines []string // failures and logs, in their order
}

func (r *recorder) Helper()               {}
func (r *recorder) Cleanup(f func())      { r.TB.Cleanup(f) }
func (r *recorder) Fatalf(string, ...any) { panic("unexpected") }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails = append(r.fails, fmt.Sprintf(format, args...))
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// payments counts what was paid.
type payments struct{ n, unseen atomic.Int64 }

// count counts the effects. One of unseen happens when the effects have been counted once without it.
func (p *payments) count() int {
	n := int(p.n.Load())
	p.n.Add(p.unseen.Swap(0))
	return n
}

func (p *payments) pay(w http.ResponseWriter, _ *http.Request) {
	id := p.n.Add(1)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, `{"id":%d}`, id)
}

func payment(user, amount string) func(string) *http.Request {
	return func(key string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":`+amount+`}`))
		r.SetBasicAuth(user, "")
		r.Header.Set("Idempotency-Key", key)
		return r
	}
}

// protected returns a Case.Handler that has h behind the middleware, on a Locker of its own.
func protected(t testing.TB, h http.HandlerFunc, key keyfunc.Func, opts ...middleware.Option) func(redis.UniversalClient) http.Handler {
	return func(client redis.UniversalClient) http.Handler {
		locker := lock.New(client, "payments", lock.WithOpTimeout(3*time.Second))
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if err := locker.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		return middleware.Idempotency(locker, key, opts...)(h)
	}
}

var standard = keyfunc.Standard(keyfunc.BasicUser())

func TestRun(t *testing.T) {
	t.Parallel()
	atMostOnce := middleware.WithAtMostOnce()
	all := []string{"double click", "lost response", "crash", "panic", "slow client"}
	for name, test := range map[string]struct {
		handler func(*testing.T, *payments) func(redis.UniversalClient) http.Handler
		edit    func(*oncetest.Case)
		faults  map[string]string // by scenario, a part of the message
	}{
		"at most once": {
			handler: func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
				return protected(t, p.pay, standard, atMostOnce, middleware.WithRequired())
			},
		},
		"at most once, waiting": {
			handler: func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
				return protected(t, p.pay, standard, atMostOnce, middleware.WithWait(10*time.Second))
			},
		},
		"default, which runs again": {
			handler: func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
				return protected(t, p.pay, standard)
			},
			edit: func(c *oncetest.Case) { c.RunsAgain = true },
		},
		"default, which must not run again": {
			handler: func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
				return protected(t, p.pay, standard)
			},
			faults: map[string]string{"crash": "WithAtMostOnce", "panic": "WithAtMostOnce"},
		},
		"not wrapped": {
			handler: func(_ *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
				return func(redis.UniversalClient) http.Handler { return http.HandlerFunc(p.pay) }
			},
			faults: map[string]string{
				"double click": "twice", "lost response": "Mount middleware.Idempotency", "crash": "twice", "panic": "twice",
				"slow client": "twice", "other request": "had an effect too", "unknown length": "had an effect too",
			},
		},
		"wrapped with a lock of one process": {
			handler: func(_ *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
				return func(redis.UniversalClient) http.Handler { return inMemory(p.pay) }
			},
			faults: map[string]string{"crash": "twice", "panic": "twice"},
			edit:   func(c *oncetest.Case) { c.OtherRequest, c.OtherUser = nil, nil },
		},
		"the user is not in the key": {
			handler: func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
				return protected(t, p.pay, keyfunc.Standard(keyfunc.Anonymous()), atMostOnce)
			},
			faults: map[string]string{"other user": "got the response of the first"},
		},
		"the amount is not in the fingerprint": {
			handler: func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
				return protected(t, p.pay, standard, atMostOnce,
					middleware.WithFingerprint("none", func(*http.Request, []byte) []byte { return nil }))
			},
			faults: map[string]string{"other request": "WithFingerprint", "unknown length": "WithFingerprint"},
		},
		"an outer middleware reads the body": {
			handler: func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
				protect := protected(t, p.pay, standard, atMostOnce)
				return func(client redis.UniversalClient) http.Handler {
					next := protect(client)
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
						next.ServeHTTP(w, r)
					})
				}
			},
			faults: map[string]string{"double click": "500", "lost response": "500", "crash": "500", "panic": "500", "slow client": "500",
				"other request": "500", "other user": "500", "unknown length": "may read the body"},
		},
		"a length is required": {
			handler: func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
				protect := protected(t, p.pay, standard, atMostOnce)
				return func(client redis.UniversalClient) http.Handler {
					next := protect(client)
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.ContentLength < 0 {
							w.WriteHeader(http.StatusLengthRequired)
							return
						}
						next.ServeHTTP(w, r)
					})
				}
			},
		},
		"it pays twice": {
			handler: func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
				return protected(t, func(w http.ResponseWriter, r *http.Request) {
					p.n.Add(1)
					p.pay(w, r)
				}, standard, atMostOnce)
			},
			faults: map[string]string{"double click": "twice", "lost response": "one request was sent", "crash": "twice", "panic": "twice",
				"slow client": "twice", "other request": "had an effect too", "unknown length": "had an effect too"},
		},
		"it pays after its answer": {
			handler: func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
				var begun atomic.Int64
				protect := protected(t, func(w http.ResponseWriter, _ *http.Request) {
					begun.Add(1)
					w.WriteHeader(http.StatusAccepted)
				}, standard, atMostOnce)
				return func(client redis.UniversalClient) http.Handler {
					next := protect(client)
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						defer func() { p.unseen.Add(begun.Swap(0)) }() // net/http sends the response after this
						next.ServeHTTP(w, r)
					})
				}
			},
			faults: map[string]string{"double click": "only after that", "lost response": "only after that", "crash": "only after that",
				"panic": "only after that", "slow client": "only after that", "other request": "only after that", "other user": "only after that",
				"unknown length": "only after that"},
		},
		"a Recoverer inside": {
			handler: func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
				return protected(t, recovering(p.pay), standard)
			},
			edit:   func(c *oncetest.Case) { c.RunsAgain = true },
			faults: map[string]string{"panic": "Mount the Recoverer outside"},
		},
		"a Recoverer inside, and a handler without a header": {
			handler: func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
				return protected(t, recovering(func(w http.ResponseWriter, _ *http.Request) {
					p.n.Add(1)
					w.WriteHeader(http.StatusCreated)
				}), standard)
			},
			edit:   func(c *oncetest.Case) { c.RunsAgain = true },
			faults: map[string]string{"panic": "Mount the Recoverer outside"},
		},
		"a Recoverer inside, and a handler that only writes": {
			handler: func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
				return protected(t, recovering(func(w http.ResponseWriter, _ *http.Request) {
					p.n.Add(1)
					_, _ = io.WriteString(w, "paid")
				}), standard)
			},
			edit:   func(c *oncetest.Case) { c.RunsAgain = true },
			faults: map[string]string{"panic": "Mount the Recoverer outside"},
		},
		"a key that nobody sends": {
			handler: func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
				return protected(t, p.pay, keyfunc.Standard(keyfunc.User(func(context.Context) string { return "" })), middleware.WithRequired())
			},
			faults: map[string]string{"double click": "401", "lost response": "Does Case.Request reach the handler",
				"crash": "401", "panic": "401", "slow client": "401", "other request": "401", "other user": "401",
				"unknown length": "401"},
		},
		"the effect is counted under the handler's mutex": {
			handler: func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
				return protected(t, p.pay, standard, atMostOnce)
			},
			edit: func(c *oncetest.Case) {
				var mu sync.Mutex
				handler, count := c.Handler, c.Effects
				c.Effects = func() int { mu.Lock(); defer mu.Unlock(); return count() }
				c.Handler = func(client redis.UniversalClient) http.Handler {
					next := handler(client)
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						mu.Lock()
						defer mu.Unlock()
						next.ServeHTTP(w, r)
					})
				}
			},
			faults: map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := new(payments)
			c := oncetest.Case{
				Handler: test.handler(t, p), Request: payment("ann", "1250"), Effects: p.count,
				OtherRequest: payment("ann", "99"), OtherUser: payment("bob", "1250"),
			}
			if test.edit != nil {
				test.edit(&c)
			}
			r := &recorder{TB: t}
			oncetest.Run(r, c)
			for _, scenario := range append(all, "other request", "unknown length", "other user") {
				want, wanted := test.faults[scenario]
				found := 0
				for _, fail := range r.fails {
					if !strings.HasPrefix(fail, "oncetest: "+scenario+": ") {
						continue
					}
					if found++; !wanted || !strings.Contains(fail, want) {
						t.Errorf("want %q in: %s", want, fail)
					}
				}
				if wanted && found != 1 {
					t.Errorf("%s: %d faults found, want one with %q", scenario, found, want)
				}
			}
		})
	}
}

// inMemory is what many write first: a map of responses in the process.
func inMemory(next http.HandlerFunc) http.Handler {
	var mu sync.Mutex
	seen := map[string]*httptest.ResponseRecorder{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		key := r.Header.Get("Idempotency-Key")
		if seen[key] == nil {
			rec := httptest.NewRecorder()
			next(rec, r)
			w.Header() // panics
			seen[key] = rec
		}
		w.WriteHeader(seen[key].Code)
		_, _ = io.Copy(w, strings.NewReader(seen[key].Body.String()))
	})
}

// recovering is a Recoverer.
func recovering(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				http.Error(w, "internal error", http.StatusInternalServerError)
			}
		}()
		next(w, r)
	}
}

func TestRunPanicsOnAnIncompleteCase(t *testing.T) {
	t.Parallel()
	p := new(payments)
	whole := oncetest.Case{Handler: protected(t, p.pay, standard), Request: payment("ann", "1"), Effects: p.count}
	for name, edit := range map[string]func(*oncetest.Case){
		"Handler":  func(c *oncetest.Case) { c.Handler = nil },
		"Request":  func(c *oncetest.Case) { c.Request = nil },
		"Effects":  func(c *oncetest.Case) { c.Effects = nil },
		"Lease is": func(c *oncetest.Case) { c.Lease = -1 },
		"Limit is": func(c *oncetest.Case) { c.Limit = -1 },
	} {
		c := whole
		edit(&c)
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "oncetest.Run: Case."+name) {
					t.Errorf("panic = %q", got)
				}
			}()
			oncetest.Run(t, c)
		}()
	}
}

// A service as the README has it passes, with chi and all that is mounted around the route.
func TestRunOnARouter(t *testing.T) {
	t.Parallel()
	p := new(payments)
	oncetest.Run(t, oncetest.Case{
		Handler: func(client redis.UniversalClient) http.Handler {
			r := chi.NewRouter()
			r.Use(chimiddleware.RequestID, chimiddleware.Compress(5))
			r.Use(func(next http.Handler) http.Handler { return recovering(next.ServeHTTP) })
			once := protected(t, p.pay, standard, middleware.WithAtMostOnce(), middleware.WithRequired(), middleware.WithWait(10*time.Second))
			r.Method(http.MethodPost, "/payments", once(client))
			return r
		},
		Request: payment("ann", "1250"), Effects: p.count,
		OtherRequest: payment("ann", "99"), OtherUser: payment("bob", "1250"),
	})
}

// A handler that says by itself that nothing has happened, after something has, is found.
func TestRunFindsAWrongDiscard(t *testing.T) {
	t.Parallel()
	p := new(payments)
	r := &recorder{TB: t}
	oncetest.Run(r, oncetest.Case{
		Handler: protected(t, func(w http.ResponseWriter, req *http.Request) {
			p.n.Add(1)
			if err := errors.Join(req.Context().Err(), middleware.FromContext(req.Context()).Discard()); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusBadGateway)
		}, standard, middleware.WithAtMostOnce()),
		Request: payment("ann", "1250"), Effects: p.count,
	})
	if len(r.fails) == 0 {
		t.Error("no fault was found")
	}
}
