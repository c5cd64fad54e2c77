package system_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/sqljournal"
	"github.com/onceguard/onceguard/sqljournal/internal/dbtest"
)

// A scene's lease and limit are longer than any test. Tests let them pass by [scene.elapseLease] and
// [scene.elapseLimit].
const (
	sceneLease = time.Minute
	sceneLimit = 2 * time.Minute
)

// scene is a Redis, a database and a payment provider of one test, with a proxy before each of the first two.
type scene struct {
	redis      *redistest.Server
	redisProxy *redistest.Proxy
	database   dbtest.Database
	dbProxy    *dbtest.Proxy
	db         *sql.DB // past the proxy
	provider   *provider
}

func newScene(t *testing.T, server *dbtest.Server) *scene {
	t.Helper()
	c := &scene{redis: redistest.Start(t), database: server.Database(t), provider: newProvider(t)}
	c.redisProxy = redistest.NewProxy(t, c.redis.Addr())
	c.dbProxy = dbtest.NewProxy(t, server)
	c.db = c.database.Open(t)
	if _, err := c.db.ExecContext(t.Context(), "create table payments (id text, nonce text)"); err != nil {
		t.Fatal(err)
	}
	return c
}

// eachServer runs a test on each kind of server, which only this test uses.
func eachServer(t *testing.T, test func(*testing.T, *dbtest.Server)) {
	t.Helper()
	for _, kind := range dbtest.Servers {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(t, dbtest.Own(t, kind).Server)
		})
	}
}

// proxied returns s with the scene's servers, behind the proxies, and its times.
func (c *scene) proxied(s shop) shop {
	s.Redis, s.Database = c.redisProxy.Addr(), c.database.URL(dbtest.Through(c.dbProxy))
	s.Kind = c.database.Kind
	s.Lease, s.Limit, s.Patient = sceneLease, sceneLimit, true
	return s
}

// direct returns s with the scene's servers and times.
func (c *scene) direct(s shop) shop {
	s = c.proxied(s)
	s.Redis, s.Database = c.redis.Addr(), c.database.URL()
	return s
}

// cut drops what the proxies hold.
func (c *scene) cut() {
	c.redisProxy.Cut()
	c.dbProxy.Cut()
}

// elapseLease lets the leases in Redis that are not renewed run out.
func (c *scene) elapseLease(t *testing.T) {
	t.Helper()
	c.redis.Elapse(t, sceneLease)
}

// elapseLimit lets the limits in the journal pass.
func (c *scene) elapseLimit(t *testing.T) {
	t.Helper()
	_, err := c.db.ExecContext(t.Context(), "update onceguard_journal set until = until - "+c.database.Interval(sceneLimit)+" where state = 1")
	if err != nil {
		t.Fatal(err)
	}
}

// isClaimed reports whether there is a claim in Redis.
func (c *scene) isClaimed(t *testing.T) bool {
	t.Helper()
	for _, key := range c.redis.Keys(t) {
		if value, _ := c.redis.Raw(t, key); strings.HasPrefix(value, "OGc\x01") {
			return true
		}
	}
	return false
}

// sweep sweeps until it was handed a row, which may take until the database has noticed that a process is dead.
func (c *scene) sweep(t *testing.T, end func(context.Context, sqljournal.Unfinished) error) {
	t.Helper()
	await(t, "a row for Sweep", func() bool {
		n, err := sqljournal.Intent(c.db, namespace, c.database.Kind.Options()...).Sweep(t.Context(), 0, time.Minute, end)
		if err != nil || n > 1 {
			t.Fatalf("Sweep: %d, %v", n, err)
		}
		return n == 1
	})
}

func (c *scene) sweepFree(t *testing.T) {
	t.Helper()
	c.sweep(t, func(ctx context.Context, u sqljournal.Unfinished) error { return u.Free(ctx, c.db) })
}

func (c *scene) sweepDone(t *testing.T) {
	t.Helper()
	c.sweep(t, func(ctx context.Context, u sqljournal.Unfinished) error { return u.Done(ctx, c.db, time.Hour, nil) })
}

// effects returns the number of payments for a key, in the database and elsewhere.
func (c *scene) effects(t *testing.T, key string) int {
	t.Helper()
	var n int
	if err := c.db.QueryRowContext(t.Context(), "select count(*) from payments where id = '"+key+"'").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n + c.provider.count(key)
}

func (c *scene) wantEffects(t *testing.T, key string, want int) {
	t.Helper()
	if got := c.effects(t, key); got != want {
		t.Errorf("effects of %s: got %d, want %d", key, got, want)
	}
}

// await polls until done reports true.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(patience); !done(); <-poll.C {
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s: nothing within %v", what, patience)
		}
	}
}

// provider makes payments that no transaction takes back.
type provider struct {
	url string

	mu   sync.Mutex
	paid map[string]int // by key
	hold chan string    // keys of requests that are held until their client is gone; nil: none
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{paid: map[string]int{}}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var paid receipt
	if err := json.NewDecoder(r.Body).Decode(&paid); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	hold := p.hold
	if hold == nil {
		p.paid[paid.Key]++
	}
	p.mu.Unlock()
	if hold != nil {
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not notice that the client is gone
		hold <- paid.Key
		<-r.Context().Done()
	}
}

// holdRequests makes the provider do nothing but hold requests, and returns their keys.
func (p *provider) holdRequests() <-chan string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = make(chan string, 1)
	return p.hold
}

func (p *provider) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = nil
}

func (p *provider) count(key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paid[key]
}

// customer asks a shop.
type customer struct {
	http *http.Client
	url  string
}

// serve serves a shop in this process.
func serve(t *testing.T, s shop) customer {
	t.Helper()
	handler, closeAll, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.Close()
		if err := closeAll(); err != nil {
			t.Errorf("closing a shop: %v", err)
		}
	})
	return newCustomer(t, server.URL)
}

func newCustomer(t *testing.T, url string) customer {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return customer{&http.Client{Transport: transport, Timeout: 2 * patience}, url}
}

// run serves a shop in a separate process.
func run(t *testing.T, s shop) (*redistest.Process, customer) {
	t.Helper()
	p := start(t, s)
	return p, newCustomer(t, p.Line(t))
}

// start starts a process that prints its URL when it serves.
func start(t *testing.T, s shop) *redistest.Process {
	t.Helper()
	encoded, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return redistest.Run(t, "shop", string(encoded))
}

// answer is the response that a customer got.
type answer struct {
	status   int
	replayed bool
	body     string
	err      error // the connection broke
}

// String returns the answer as tests expect it: the status, the problem and "replay" where there is one.
func (a answer) String() string {
	if a.err != nil {
		return "broken"
	}
	s := fmt.Sprint(a.status)
	if p := a.problem(); p != "" {
		s += " " + p
	}
	if a.replayed {
		s += " replay"
	}
	return s
}

// problem returns the name of the problem in the body, or "" if there is none.
func (a answer) problem() string {
	var p middleware.Problem
	_ = json.Unmarshal([]byte(a.body), &p) // not a problem
	return strings.TrimPrefix(p.Type, "urn:onceguard:problem:")
}

// ask sends a payment once. Without GetBody, the transport cannot repeat it.
func (c customer) ask(ctx context.Context, key string) (a answer) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/payments", io.NopCloser(bytes.NewReader([]byte(`{"amount":1250}`))))
	if err != nil {
		return answer{err: err}
	}
	r.SetBasicAuth("ann", "")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", `"`+key+`"`)
	r.Header.Set("X-Payment", key)
	response, err := c.http.Do(r)
	if err != nil {
		return answer{err: err}
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	return answer{
		status: response.StatusCode, replayed: response.Header.Get("Idempotent-Replayed") == "true", body: string(body), err: err,
	}
}

// asks is ask in a goroutine.
func (c customer) asks(ctx context.Context, key string) <-chan answer {
	got := make(chan answer, 1)
	go func() { got <- c.ask(ctx, key) }()
	return got
}

func wantAnswer(t *testing.T, what string, got answer, want string) {
	t.Helper()
	if got.String() != want {
		t.Errorf("%s: got %v %s %v, want %s", what, got, strings.TrimSpace(got.body), got.err, want)
	}
}

// The statements and commands of a run, in their order.
var (
	looks     = dbtest.Statement("select key")                                             // Begin of a transactional journal
	begins    = dbtest.Statement("insert into onceguard_journal (key, token, state, note") // Begin of an intent journal
	opens     = dbtest.Statement("begin")                                                  // InTx, its first statement
	completes = map[journalMode]dbtest.Match{
		transactional: dbtest.Statement("insert into onceguard_journal"),
		intent:        dbtest.Statement("update onceguard_journal set state = 2"),
	}
	commits = dbtest.Statement("commit")
)

// settles matches a Settle in Redis: a script gets the value to store, which begins like this.
func settles(c redistest.Command) bool {
	isValue := func(arg []byte) bool { return bytes.HasPrefix(arg, []byte("OGv\x01")) }
	return redistest.Named("EVALSHA", "EVAL")(c) && slices.ContainsFunc(c.Args, isValue)
}

func completeOf(mode journalMode) dbtest.Match { return completes[mode] }

func commitOf(journalMode) dbtest.Match { return commits }

// beginOf returns the statement of a journal's Begin.
func beginOf(mode journalMode) dbtest.Match {
	if mode == intent {
		return begins
	}
	return looks
}
