package oncetest_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
}

func (r *recorder) Fatalf(string, ...any) { panic("unexpected") }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails = append(r.fails, fmt.Sprintf(format, args...))
}

// payments counts what was paid.
type payments struct {
	n, begun, unseen atomic.Int64
	mu               sync.Mutex
}

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

// service returns a Case.Handler whose effect p counts.
type service func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler

// behind returns the service whose handler is behind the middleware with these options, and with the key function standard.
func behind(opts ...middleware.Option) service { return handling((*payments).pay, opts...) }

// handling is behind with another handler.
func handling(h func(*payments, http.ResponseWriter, *http.Request), opts ...middleware.Option) service {
	return func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
		return protected(t, func(w http.ResponseWriter, r *http.Request) { h(p, w, r) }, standard, opts...)
	}
}

// keyed is behind with another key function.
func keyed(key keyfunc.Func, opts ...middleware.Option) service {
	return func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
		return protected(t, p.pay, key, opts...)
	}
}

// within mounts a middleware around a service.
func within(outer func(p *payments, next http.Handler, w http.ResponseWriter, r *http.Request), s service) service {
	return func(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
		build := s(t, p)
		return func(client redis.UniversalClient) http.Handler {
			next := build(client)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { outer(p, next, w, r) })
		}
	}
}

// bare is a service without the middleware.
func bare(wrap func(http.HandlerFunc) http.Handler) service {
	return func(_ *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
		return func(redis.UniversalClient) http.Handler { return wrap(p.pay) }
	}
}

var all = []string{"double click", "lost response", "crash", "panic", "slow client", "other request", "unknown length", "other user"}

// each returns want for each scenario but those in other, and for these what they have there.
func each(want string, other map[string]string) map[string]string {
	faults := map[string]string{}
	for _, scenario := range all {
		faults[scenario] = want
	}
	for scenario, want := range other {
		if faults[scenario] = want; want == "" {
			delete(faults, scenario)
		}
	}
	return faults
}

func TestRun(t *testing.T) {
	t.Parallel()
	atMostOnce := middleware.WithAtMostOnce()
	runsAgain := func(c *oncetest.Case) { c.RunsAgain = true }
	twice := each("2 times", map[string]string{"other request": "had an effect too", "unknown length": "had an effect too", "other user": ""})
	with := func(scenario, want string) map[string]string {
		faults := maps.Clone(twice)
		faults[scenario] = want
		return faults
	}
	for name, test := range map[string]struct {
		service service
		edit    func(*oncetest.Case)
		faults  map[string]string // by scenario, a part of the message

		isLocked bool // the effects are counted under the mutex
	}{
		"at most once":                      {service: behind(atMostOnce, middleware.WithRequired())},
		"at most once, waiting":             {service: behind(atMostOnce, middleware.WithWait(30*time.Second))},
		"default, which runs again":         {service: behind(), edit: runsAgain},
		"default, which must not run again": {service: behind(), faults: map[string]string{"crash": "WithAtMostOnce", "panic": "WithAtMostOnce"}},
		"not wrapped": {
			service: bare(func(h http.HandlerFunc) http.Handler { return h }), faults: with("lost response", "Mount middleware.Idempotency"),
		},
		"wrapped with a lock of one process": {
			service: bare(inMemory), faults: map[string]string{"crash": "2 times", "panic": "2 times"},
			edit: func(c *oncetest.Case) { c.OtherRequest, c.OtherUser = nil, nil },
		},
		"the user is not in the key": {
			service: keyed(keyfunc.Standard(keyfunc.Anonymous()), atMostOnce), faults: map[string]string{"other user": "got the response of the first"},
		},
		"the amount is not in the fingerprint": {
			service: behind(atMostOnce, middleware.WithFingerprint("none", func(*http.Request, []byte) []byte { return nil })),
			faults:  map[string]string{"other request": "WithFingerprint", "unknown length": "WithFingerprint"},
		},
		"an outer middleware reads the body": {
			service: within(func(_ *payments, next http.Handler, w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				next.ServeHTTP(w, r)
			}, behind(atMostOnce)),
			faults: each("500", map[string]string{"unknown length": "may read the body"}),
		},
		"a length is required": {
			service: within(func(_ *payments, next http.Handler, w http.ResponseWriter, r *http.Request) {
				if r.ContentLength < 0 {
					w.WriteHeader(http.StatusLengthRequired)
					return
				}
				next.ServeHTTP(w, r)
			}, behind(atMostOnce)),
		},
		"it pays twice": {
			service: handling(func(p *payments, w http.ResponseWriter, r *http.Request) {
				p.n.Add(1)
				p.pay(w, r)
			}, atMostOnce),
			faults: with("lost response", "one request was sent"),
		},
		"it pays after its answer": {
			service: within(func(p *payments, next http.Handler, w http.ResponseWriter, r *http.Request) {
				defer func() { p.unseen.Add(p.begun.Swap(0)) }() // net/http sends the response after this
				next.ServeHTTP(w, r)
			}, handling(func(p *payments, w http.ResponseWriter, _ *http.Request) {
				p.begun.Add(1)
				w.WriteHeader(http.StatusAccepted)
			}, atMostOnce)),
			faults: each("only after that", nil),
		},
		"it says that nothing has happened, after something has": {
			service: handling(func(p *payments, w http.ResponseWriter, r *http.Request) {
				p.n.Add(1)
				_ = middleware.FromContext(r.Context()).Discard()
				w.WriteHeader(http.StatusBadGateway)
			}, atMostOnce),
			faults: map[string]string{
				"lost response": "2 times", "slow client": "2 times", "other request": "had an effect too", "unknown length": "had an effect too",
			},
		},
		"a Recoverer inside": {
			service: handling(func(p *payments, w http.ResponseWriter, r *http.Request) { recovering(p.pay)(w, r) }),
			edit:    runsAgain, faults: map[string]string{"panic": "Mount the Recoverer outside"},
		},
		"a Recoverer inside, and a handler that only writes": {
			service: handling(func(p *payments, w http.ResponseWriter, r *http.Request) {
				recovering(func(w http.ResponseWriter, _ *http.Request) {
					p.n.Add(1)
					_, _ = io.WriteString(w, "paid")
				})(w, r)
			}),
			edit: runsAgain, faults: map[string]string{"panic": "Mount the Recoverer outside"},
		},
		"a key that nobody sends": {
			service: keyed(keyfunc.Standard(keyfunc.User(func(context.Context) string { return "" })), middleware.WithRequired()),
			faults:  each("401", map[string]string{"lost response": "Does Case.Request reach the handler"}),
		},
		"the effect is counted under the handler's mutex": {
			service: within(func(p *payments, next http.Handler, w http.ResponseWriter, r *http.Request) {
				p.mu.Lock()
				defer p.mu.Unlock()
				next.ServeHTTP(w, r)
			}, behind(atMostOnce)),
			isLocked: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := new(payments)
			c := oncetest.Case{
				Handler: test.service(t, p), Request: payment("ann", "1250"), Effects: p.count,
				OtherRequest: payment("ann", "99"), OtherUser: payment("bob", "1250"),
			}
			if test.edit != nil {
				test.edit(&c)
			}
			if test.isLocked {
				c.Effects = func() int { p.mu.Lock(); defer p.mu.Unlock(); return p.count() }
			}
			r := &recorder{TB: t}
			oncetest.Run(r, c)
			for _, scenario := range all {
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
		"no handler": func(c *oncetest.Case) { c.Handler = nil },
		"no request": func(c *oncetest.Case) { c.Request = nil },
		"no effects": func(c *oncetest.Case) { c.Effects = nil },
	} {
		c := whole
		edit(&c)
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "oncetest.Run: Case.") {
					t.Errorf("%s: panic = %q", name, got)
				}
			}()
			oncetest.Run(t, c)
		}()
	}
}
