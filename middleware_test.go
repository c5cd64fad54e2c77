package onceguard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

func TestMain(m *testing.M) {
	redistest.Main(m)
}

// patience bounds every wait. Only a failing test waits this long.
const patience = 20 * time.Second

// Clients request a payment, repeat it, and reuse its key wrongly, at two instances of one service.
//
// conformance: 15, 16, 24, 27, 29, 32
func TestPaymentIsMadeOnce(t *testing.T) {
	t.Parallel()
	for _, routers := range [][2]router{{onChi, onChi}, {onServeMux, onServeMux}, {onChi, onServeMux}} {
		t.Run(routers[0].name+" and "+routers[1].name, func(t *testing.T) {
			t.Parallel()
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				t.Parallel()
				testPaymentIsMadeOnce(t, newService(t, b, routers[0], routers[1]))
			})
		})
	}
}

func testPaymentIsMadeOnce(t *testing.T, s *service) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s.bank.setHook("slow", func(http.ResponseWriter, *http.Request) bool {
		close(entered)
		<-leave
		return true
	})

	// The first request makes the payment. The other instance replays the response byte for byte.
	first := s.one.pay(t, "ann", "k1", 1250)
	first.is(t, http.StatusCreated, "")
	again := s.two.pay(t, "ann", "k1", 1250)
	again.is(t, http.StatusCreated, "true")
	if again.body != first.body || again.header.Get("Location") != first.header.Get("Location") ||
		again.header.Get("Content-Type") != first.header.Get("Content-Type") {
		t.Errorf("the replay: got %v %q, want %v %q", again.header, again.body, first.header, first.body)
	}

	// Another payment with the same key is refused, and does not affect the first.
	s.two.pay(t, "ann", "k1", 1).refused(t, http.StatusUnprocessableEntity, "key-reused")
	s.one.pay(t, "ann", "k1", 1250).is(t, http.StatusCreated, "true")

	// Another user with the same key gets a payment of their own.
	stranger := s.two.pay(t, "bob", "k1", 1250)
	stranger.is(t, http.StatusCreated, "")
	if stranger.body == first.body {
		t.Errorf("bob got ann's payment: %s", stranger.body)
	}

	// While a payment is being made, a duplicate is told to retry later, and a different payment with its key is
	// refused.
	slow := make(chan response, 1)
	go func() { slow <- s.one.pay(t, "ann", "slow", 700) }()
	await(t, entered, "the handler")
	for _, instance := range []*instance{s.one, s.two} {
		duplicate := instance.pay(t, "ann", "slow", 700)
		duplicate.refused(t, http.StatusConflict, "in-flight")
		if after, err := strconv.Atoi(duplicate.header.Get("Retry-After")); err != nil || after < 1 {
			t.Errorf("Retry-After: got %q, want at least 1 second", duplicate.header.Get("Retry-After"))
		}
		instance.pay(t, "ann", "slow", 1).refused(t, http.StatusUnprocessableEntity, "key-reused")
	}
	close(leave)
	last := await(t, slow, "the response of the slow payment")
	last.is(t, http.StatusCreated, "")
	s.two.pay(t, "ann", "slow", 700).is(t, http.StatusCreated, "true")

	// Each payment was made once.
	if got, want := s.two.list(t, "ann"), "["+first.body+","+last.body+"]"; got != want {
		t.Errorf("ann has paid %s, want %s", got, want)
	}
	if got, want := s.one.list(t, "bob"), "["+stranger.body+"]"; got != want {
		t.Errorf("bob has paid %s, want %s", got, want)
	}
}

// Many clients send the same request six times at once, three times to each instance. The handler of a key does not
// return before all five rivals have their response, so each of these must be 409.
//
// conformance: 25
func TestSixAtOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const keys, together = 300, 30
		s := newService(t, b, onChi, onServeMux)
		for start := 0; start < keys; start += together {
			var batch sync.WaitGroup
			for i := start; i < start+together; i++ {
				batch.Go(func() { sixAtOnce(t, s, fmt.Sprint("key-", i)) })
			}
			batch.Wait()
		}
		if got := len(s.bank.payments("ann")); got != keys {
			t.Errorf("payments: got %d, want %d", got, keys)
		}
	})
}

func sixAtOnce(t *testing.T, s *service, key string) {
	const each = 3
	const rivals = 2*each - 1
	var refused atomic.Int32
	allRefused := make(chan struct{})
	s.bank.setHook(key, func(http.ResponseWriter, *http.Request) bool {
		await(t, allRefused, "five times 409 for "+key)
		return true
	})

	var six sync.WaitGroup
	var created response
	var executed atomic.Int32
	start := make(chan struct{})
	for range each {
		for _, instance := range []*instance{s.one, s.two} {
			six.Go(func() {
				<-start
				got := instance.pay(t, "ann", key, 1250)
				switch {
				case got.status == http.StatusCreated && executed.Add(1) == 1:
					created = got
				case got.status == http.StatusConflict:
					if refused.Add(1) == rivals {
						close(allRefused)
					}
				default:
					t.Errorf("%s: got %d %s, want one 201 and five 409", key, got.status, got.body)
				}
			})
		}
	}
	close(start)
	six.Wait()

	if got := s.bank.runs(key); got != 1 || executed.Load() != 1 || refused.Load() != rivals {
		t.Errorf("%s: got %d runs, %d responses 201, %d responses 409; want 1, 1, %d",
			key, got, executed.Load(), refused.Load(), rivals)
	}
	for _, instance := range []*instance{s.one, s.two} {
		replay := instance.pay(t, "ann", key, 1250)
		replay.is(t, http.StatusCreated, "true")
		if replay.body != created.body {
			t.Errorf("%s: replayed %s, want %s", key, replay.body, created.body)
		}
	}
	if got := s.bank.runs(key); got != 1 {
		t.Errorf("%s: after the replays: got %d runs, want 1", key, got)
	}
}

// Redis has one key for each stored response, and neither keys nor users in plain text.
//
// conformance: 35
func TestWhatIsInRedis(t *testing.T) {
	t.Parallel()
	stored := regexp.MustCompile(`^payments:\{[0-9a-f]{4}\}[0-9a-f]{64}$`)
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		s := newService(t, b, onChi, onServeMux)
		s.bank.setHook("fails", func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusBadGateway)
			return false
		})
		s.one.pay(t, "ann", "fails", 1250).is(t, http.StatusBadGateway, "")
		s.two.pay(t, "ann", "fails", 1250).is(t, http.StatusBadGateway, "")
		if got := s.bank.runs("fails"); got != 2 {
			t.Errorf("runs of a request that fails: got %d, want 2", got)
		}
		if keys := b.Keys(t); len(keys) != 0 {
			t.Errorf("after a request that failed: got %q, want nothing", keys)
		}

		s.one.pay(t, "user-ann", "raw-key-1", 424242).is(t, http.StatusCreated, "")
		s.two.pay(t, "user-bob", "raw-key-1", 424242).is(t, http.StatusCreated, "")
		s.one.pay(t, "user-bob", "raw-key-2", 424242).is(t, http.StatusCreated, "")
		s.two.pay(t, "user-ann", "raw-key-1", 424242).is(t, http.StatusCreated, "true")
		s.one.pay(t, "user-ann", "raw-key-1", 1).refused(t, http.StatusUnprocessableEntity, "key-reused")
		s.one.pay(t, "user-ann", "", 424242).refused(t, http.StatusBadRequest, "key-missing")
		malformed := s.one.payment(t, "user-ann", "", 424242)
		malformed.Header.Set("Idempotency-Key", `"raw-key`)
		s.one.do(t, malformed).refused(t, http.StatusBadRequest, "key-invalid")
		s.one.pay(t, "", "raw-key-3", 424242).refused(t, http.StatusUnauthorized, "user-unknown")
		s.two.list(t, "user-ann")

		keys := b.Keys(t)
		if len(keys) != 3 {
			t.Errorf("got %d keys, want one for each of the three payments: %q", len(keys), keys)
		}
		for _, key := range keys {
			if !stored.MatchString(key) {
				t.Errorf("key %q does not match %s", key, stored)
			}
			value, _ := b.Raw(t, key)
			for _, text := range []string{"raw-key", "user-ann", "user-bob"} {
				if strings.Contains(key+value, text) {
					t.Errorf("%q is in Redis: %q = %q", text, key, value)
				}
			}
			if strings.Contains(key, "424242") {
				t.Errorf("the body is in the key %q", key)
			}
		}
	})
}

// The round trips of each kind of request, once the connection is up and the server has the scripts.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	redistest.Since(t, "7.0", "SET with both NX and GET, which this test counts on,")
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		proxy := redistest.NewProxy(t, b.Addr())
		s := newService(t, backendWith{b, func(t testing.TB) *redis.Client { return proxy.Client(t) }}, onChi, onServeMux)
		entered, leave := make(chan struct{}), make(chan struct{})
		s.bank.setHook("slow", func(http.ResponseWriter, *http.Request) bool {
			close(entered)
			<-leave
			return true
		})
		fail := func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusBadGateway)
			return false
		}
		s.bank.setHook("warm-up that fails", fail)
		s.bank.setHook("fails", fail)
		cost := func(what string, want int) {
			t.Helper()
			if got := proxy.RoundTrips(); got != want {
				t.Errorf("%s: got %d round trips %v, want %d", what, got, proxy.Commands(), want)
			}
			proxy.Reset()
		}
		s.one.pay(t, "ann", "warm-up", 1250).is(t, http.StatusCreated, "")
		s.one.pay(t, "ann", "warm-up that fails", 1250).is(t, http.StatusBadGateway, "")
		proxy.Reset()

		s.one.pay(t, "ann", "k", 1250).is(t, http.StatusCreated, "")
		cost("a first request", 2)
		s.one.pay(t, "ann", "k", 1250).is(t, http.StatusCreated, "true")
		cost("a replay", 1)
		s.one.pay(t, "ann", "k", 1).refused(t, http.StatusUnprocessableEntity, "key-reused")
		cost("a mismatch", 1)
		s.one.pay(t, "ann", "fails", 1250).is(t, http.StatusBadGateway, "")
		cost("a request that fails", 2)
		s.one.pay(t, "ann", "", 1250).refused(t, http.StatusBadRequest, "key-missing")
		cost("a request without a key", 0)

		slow := make(chan response, 1)
		go func() { slow <- s.one.pay(t, "ann", "slow", 700) }()
		await(t, entered, "the handler")
		cost("a request that runs", 1)
		s.one.pay(t, "ann", "slow", 700).refused(t, http.StatusConflict, "in-flight")
		cost("a duplicate in flight", 1)
		s.one.pay(t, "ann", "slow", 1).refused(t, http.StatusUnprocessableEntity, "key-reused")
		cost("a mismatch in flight", 1)
		close(leave)
		await(t, slow, "the slow response").is(t, http.StatusCreated, "")
		cost("the end of a request that ran", 1)
	})
}

// The handler panics, and the connection breaks without a response. If the connection was a reused one, Go's own
// http.Transport retries a POST with an Idempotency-Key at once.
//
// conformance: 52
func TestTransportRetriesByItself(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		s := newService(t, b, onChi, onServeMux)
		for _, instance := range []*instance{s.one, s.two} {
			key := "k of " + instance.url
			var panicked atomic.Bool
			s.bank.setHook(key, func(http.ResponseWriter, *http.Request) bool {
				if panicked.CompareAndSwap(false, true) {
					panic(http.ErrAbortHandler)
				}
				return true
			})
			instance.list(t, "ann") // leaves an idle connection for reuse

			var reused []bool
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GotConn: func(c httptrace.GotConnInfo) { reused = append(reused, c.Reused) },
			})
			got := instance.do(t, instance.payment(t, "ann", key, 1250).WithContext(ctx))
			if !slices.Equal(reused, []bool{true, false}) {
				t.Errorf("connections that were reused: got %v, want the first, and then a new one", reused)
			}
			got.refused(t, http.StatusConflict, "in-flight")
			outcomes := []middleware.Outcome{
				await(t, instance.events, "an event").Outcome,
				await(t, instance.events, "an event").Outcome,
			}
			slices.Sort(outcomes) // the event of the panic may come last
			if want := []middleware.Outcome{middleware.InFlight, middleware.Panicked}; !slices.Equal(outcomes, want) {
				t.Errorf("outcomes: got %q, want %q", outcomes, want)
			}
			if got := s.bank.runs(key); got != 1 {
				t.Errorf("runs: got %d, want 1", got)
			}

			// The lease is not released and expires. By default a later retry runs again.
			b.Elapse(t, lease)
			instance.pay(t, "ann", key, 1250).is(t, http.StatusCreated, "")
			instance.pay(t, "ann", key, 1250).is(t, http.StatusCreated, "true")
			if got := s.bank.runs(key); got != 2 {
				t.Errorf("runs after the lease: got %d, want 2", got)
			}
		}
	})
}

// service is two instances of a payments API on one Redis. Like two processes, each has a Redis client, a Locker and an
// HTTP server of its own. They share the bank, which makes the payments.
type service struct {
	bank     *bank
	one, two *instance
}

type instance struct {
	url    string
	http   *http.Client
	events chan middleware.Event // further events are dropped if it is full
}

// lease is the length of a lease that is not renewed.
const lease = 10 * time.Second

// newService starts both instances. Their operation timeout is long, so that a busy machine does not look like a failed
// Redis; opts can change it.
func newService(t *testing.T, b redistest.Backend, one, two router, opts ...lock.Option) *service {
	t.Helper()
	s := &service{bank: &bank{hooks: map[string]hook{}, counts: map[string]int{}}}
	opts = append([]lock.Option{lock.WithTTL(lease), lock.WithOpTimeout(lease / 2)}, opts...)
	s.one = newInstance(t, lock.New(b.Client(t), "payments", opts...), s.bank, one)
	s.two = newInstance(t, lock.New(b.Client(t), "payments", opts...), s.bank, two)
	return s
}

func newInstance(t *testing.T, locker *lock.Locker, b *bank, mount router) *instance {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := locker.Close(ctx); err != nil {
			t.Errorf("closing the locker: %v", err)
		}
	})
	i := &instance{events: make(chan middleware.Event, 100)}
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.BasicUser()),
		middleware.WithRequired(),
		middleware.WithObserver(func(_ context.Context, e middleware.Event) {
			select {
			case i.events <- e:
			default:
			}
		}))
	server := httptest.NewServer(mount.handler(b, once))
	t.Cleanup(server.Close)
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	i.url, i.http = server.URL, &http.Client{Transport: transport, Timeout: 2 * patience}
	return i
}

// router mounts a bank behind a middleware, as a user of that router would.
type router struct {
	name    string
	handler func(b *bank, once func(http.Handler) http.Handler) http.Handler
}

var (
	onChi = router{"chi", func(b *bank, once func(http.Handler) http.Handler) http.Handler {
		r := chi.NewRouter()
		r.Use(chimiddleware.Recoverer, once) // GET too, which passes untouched
		r.Post("/payments", b.pay)
		r.Get("/payments", b.list)
		return r
	}}
	onServeMux = router{"ServeMux", func(b *bank, once func(http.Handler) http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("POST /payments", once(http.HandlerFunc(b.pay)))
		mux.HandleFunc("GET /payments", b.list)
		return mux
	}}
)

// bank makes payments and records them.
type bank struct {
	mu     sync.Mutex
	made   []payment
	hooks  map[string]hook // by idempotency key
	counts map[string]int  // by idempotency key
}

type payment struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
	user   string
}

// hook runs at the start of a handler. It returns false if it has answered the request.
type hook func(http.ResponseWriter, *http.Request) (goOn bool)

// setHook sets the hook for requests with that key.
func (b *bank) setHook(key string, h hook) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hooks[key] = h
}

// runs returns how many times the handler has started for a key, over all users.
func (b *bank) runs(key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts[key]
}

// payments returns the payments of the user.
func (b *bank) payments(user string) []payment {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.made), func(p payment) bool { return p.user != user })
}

// pay is the handler of POST /payments.
func (b *bank) pay(w http.ResponseWriter, r *http.Request) {
	key := strings.Trim(r.Header.Get("Idempotency-Key"), `"`)
	b.mu.Lock()
	b.counts[key]++
	before := b.hooks[key]
	b.mu.Unlock()
	if before != nil && !before(w, r) {
		return
	}

	p := payment{ID: uuid.NewString()}
	p.user, _, _ = r.BasicAuth()
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, "not a payment", http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	b.made = append(b.made, p)
	b.mu.Unlock()
	w.Header().Set("Location", "/payments/"+p.ID)
	writeJSON(w, http.StatusCreated, p)
}

// list is the handler of GET /payments.
func (b *bank) list(w http.ResponseWriter, r *http.Request) {
	user, _, _ := r.BasicAuth()
	writeJSON(w, http.StatusOK, b.payments(user))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have disconnected
}

// payment returns a request for a payment. It has no key if key is empty, and no user if user is empty.
func (i *instance) payment(t *testing.T, user, key string, amount int) *http.Request {
	r, err := http.NewRequest(http.MethodPost, i.url+"/payments", strings.NewReader(fmt.Sprintf(`{"amount":%d}`, amount)))
	if err != nil {
		t.Error(err)
	}
	if user != "" {
		r.SetBasicAuth(user, "")
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", `"`+key+`"`)
	}
	return r
}

func (i *instance) pay(t *testing.T, user, key string, amount int) response {
	t.Helper()
	return i.do(t, i.payment(t, user, key, amount))
}

// list returns the user's payments as JSON.
func (i *instance) list(t *testing.T, user string) string {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, i.url+"/payments", nil)
	if err != nil {
		t.Error(err)
	}
	r.SetBasicAuth(user, "")
	got := i.do(t, r)
	got.is(t, http.StatusOK, "")
	return got.body
}

// response is a response whose body was read.
type response struct {
	status int
	header http.Header
	body   string
}

// do sends the request. It may be called from any goroutine. After an error the response is empty.
func (i *instance) do(t *testing.T, r *http.Request) response {
	t.Helper()
	res, err := i.http.Do(r)
	if err != nil {
		t.Errorf("%s %s: %v", r.Method, r.URL, err)
		return response{}
	}
	body, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		t.Errorf("%s %s: reading the response: %v", r.Method, r.URL, err)
	}
	return response{res.StatusCode, res.Header, string(body)}
}

// is checks the status and the Idempotent-Replayed header.
func (r response) is(t *testing.T, status int, replayed string) {
	t.Helper()
	if got := r.header.Get("Idempotent-Replayed"); r.status != status || got != replayed {
		t.Errorf("got %d, Idempotent-Replayed %q, %s; want %d, %q", r.status, got, r.body, status, replayed)
	}
}

// refused checks that the response is the problem with this name.
func (r response) refused(t *testing.T, status int, name string) {
	t.Helper()
	r.is(t, status, "")
	var p middleware.Problem
	if err := json.Unmarshal([]byte(r.body), &p); err != nil || p.Type != "urn:onceguard:problem:"+name || p.Status != status {
		t.Errorf("got %s, want the problem %s", r.body, name)
	}
}

// backendWith is a Backend whose clients client makes.
type backendWith struct {
	redistest.Backend
	client func(testing.TB) *redis.Client
}

func (b backendWith) Client(t testing.TB, _ ...func(*redis.Options)) *redis.Client {
	return b.client(t)
}

// await receives from c, or fails the test after the patience. It may be called from any goroutine.
func await[T any](t *testing.T, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Errorf("waited %v for %s", patience, what)
	}
	return v
}
