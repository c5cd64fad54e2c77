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

// service is what has the effect. What is nil has a default.
type service struct {
	key    keyfunc.Func // as README has it
	opts   []middleware.Option
	handle func(p *payments, w http.ResponseWriter, r *http.Request)                    // pay
	outer  func(p *payments, next http.Handler, w http.ResponseWriter, r *http.Request) // around the middleware: nothing
	isBare bool                                                                         // without the middleware
}

// on returns a Case.Handler, with a Locker of its own, whose effect p counts.
func (s service) on(t *testing.T, p *payments) func(redis.UniversalClient) http.Handler {
	if s.key == nil {
		s.key = keyfunc.Standard(keyfunc.BasicUser())
	}
	if s.handle == nil {
		s.handle = (*payments).pay
	}
	return func(client redis.UniversalClient) http.Handler {
		var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handle(p, w, r) })
		if s.isBare {
			return h
		}
		locker := lock.New(client, "payments", lock.WithOpTimeout(30*time.Second))
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if err := locker.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		h = middleware.Idempotency(locker, s.key, s.opts...)(h)
		if s.outer == nil {
			return h
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.outer(p, h, w, r) })
	}
}

// strict are the options of a service for money.
func strict(opts ...middleware.Option) []middleware.Option {
	return append(opts, middleware.WithAtMostOnce())
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
	type faults = map[string]string // by scenario, a part of the message
	twice := faults{"other request": "had an effect too", "unknown length": "had an effect too", "other user": ""}
	with := func(scenario, want string) faults {
		others := maps.Clone(twice)
		others[scenario] = want
		return each("2 times", others)
	}
	for name, test := range map[string]struct {
		service   service
		runsAgain bool
		faults    faults

		isLocked bool // the effects are counted under the mutex
	}{
		"at most once":                      {service: service{opts: strict(middleware.WithRequired())}},
		"at most once, waiting":             {service: service{opts: strict(middleware.WithWait(30 * time.Second))}},
		"default, which runs again":         {runsAgain: true},
		"default, which must not run again": {faults: faults{"crash": "WithAtMostOnce", "panic": "WithAtMostOnce"}},
		"not wrapped":                       {service: service{isBare: true}, faults: with("lost response", "Mount middleware.Idempotency")},
		"the user is not in the key": {
			service: service{key: keyfunc.Standard(keyfunc.Anonymous()), opts: strict()},
			faults:  faults{"other user": "got the response of the first"},
		},
		"the amount is not in the fingerprint": {
			service: service{opts: strict(middleware.WithFingerprint("none", func(*http.Request, []byte) []byte { return nil }))},
			faults:  faults{"other request": "WithFingerprint", "unknown length": "WithFingerprint"},
		},
		"an outer middleware reads the body": {
			service: service{opts: strict(), outer: func(_ *payments, next http.Handler, w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				next.ServeHTTP(w, r)
			}},
			faults: each("500", faults{"unknown length": "may read the body"}),
		},
		"a length is required": {
			service: service{opts: strict(), outer: func(_ *payments, next http.Handler, w http.ResponseWriter, r *http.Request) {
				if r.ContentLength < 0 {
					w.WriteHeader(http.StatusLengthRequired)
					return
				}
				next.ServeHTTP(w, r)
			}},
		},
		"it pays twice": {
			service: service{opts: strict(), handle: func(p *payments, w http.ResponseWriter, r *http.Request) {
				p.n.Add(1)
				p.pay(w, r)
			}},
			faults: with("lost response", "one request was sent"),
		},
		"it pays after its answer": {
			service: service{
				opts: strict(),
				outer: func(p *payments, next http.Handler, w http.ResponseWriter, r *http.Request) {
					defer func() { p.unseen.Add(p.begun.Swap(0)) }() // net/http sends the response after this
					next.ServeHTTP(w, r)
				},
				handle: func(p *payments, w http.ResponseWriter, _ *http.Request) {
					p.begun.Add(1)
					w.WriteHeader(http.StatusAccepted)
				},
			},
			faults: each("only after that", nil),
		},
		"it says that nothing has happened, after something has": {
			service: service{opts: strict(), handle: func(p *payments, w http.ResponseWriter, r *http.Request) {
				p.n.Add(1)
				_ = middleware.FromContext(r.Context()).Discard()
				w.WriteHeader(http.StatusBadGateway)
			}},
			faults: faults{
				"lost response": "2 times", "slow client": "2 times",
				"other request": "had an effect too", "unknown length": "had an effect too",
			},
		},
		"a Recoverer inside, and a handler that only writes": {
			service: service{handle: func(p *payments, w http.ResponseWriter, _ *http.Request) {
				defer func() {
					if recover() != nil {
						http.Error(w, "internal error", http.StatusInternalServerError)
					}
				}()
				p.n.Add(1)
				_, _ = io.WriteString(w, "paid")
			}},
			runsAgain: true, faults: faults{"panic": "Mount the Recoverer outside"},
		},
		"a key that nobody sends": {
			service: service{
				key:  keyfunc.Standard(keyfunc.User(func(context.Context) string { return "" })),
				opts: []middleware.Option{middleware.WithRequired()},
			},
			faults: each("401", faults{"lost response": "Does Case.Request reach the handler"}),
		},
		"the effect is counted under the handler's mutex": {
			service: service{opts: strict(), outer: func(p *payments, next http.Handler, w http.ResponseWriter, r *http.Request) {
				p.mu.Lock()
				defer p.mu.Unlock()
				next.ServeHTTP(w, r)
			}},
			isLocked: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := new(payments)
			c := oncetest.Case{
				Handler: test.service.on(t, p), Request: payment("ann", "1250"), Effects: p.count,
				OtherRequest: payment("ann", "99"), OtherUser: payment("bob", "1250"), RunsAgain: test.runsAgain,
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

func TestRunPanicsOnAnIncompleteCase(t *testing.T) {
	t.Parallel()
	p := new(payments)
	h, r := service{}.on(t, p), payment("ann", "1")
	for _, c := range []oncetest.Case{{Request: r, Effects: p.count}, {Handler: h, Effects: p.count}, {Handler: h, Request: r}} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "oncetest.Run: Case.") {
					t.Errorf("panic = %q", got)
				}
			}()
			oncetest.Run(t, c)
		}()
	}
}

// Run ends when its limit is over, although handlers hang. It says what is missing and what it left out.
func TestRunOfAHandlerThatHangs(t *testing.T) {
	t.Parallel()
	const noAnswer = "oncetest: double click: Case.Limit, 1s, was over before there was an answer to the first request, "
	for effects, want := range map[int64]string{1: noAnswer + "which has had its effect.", 0: noAnswer + "or an effect."} {
		p, goOn, returned := new(payments), make(chan struct{}), make(chan struct{})
		r := &recorder{TB: t}
		oncetest.Run(r, oncetest.Case{
			Handler: func(redis.UniversalClient) http.Handler {
				return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					defer close(returned)
					p.n.Add(effects)
					<-goOn
				})
			},
			Request: payment("ann", "1250"), Effects: p.count, OtherUser: payment("bob", "1250"), Limit: time.Second,
		})
		close(goOn)
		<-returned
		const leftOut = "oncetest: left out: lost response, crash, slow client, other user, panic."
		if len(r.fails) != 2 || !strings.HasPrefix(r.fails[0], want) || !strings.HasPrefix(r.fails[1], leftOut) {
			t.Errorf("got %q, want %q and %q", r.fails, want, leftOut)
		}
	}
}
