package demo

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const (
	patience      = 20 * time.Second
	serverTimeout = 3 * time.Second // a stream outlives it
)

type visitorKey struct{}

// serve returns the URL of a demo whose visitors are named by the header Visitor.
func serve(t *testing.T, cfg Config) string {
	t.Helper()
	cfg.Redis = &redis.Options{Addr: redistest.Mini(t).Addr(), ContextTimeoutEnabled: true}
	cfg.OpTimeout = patience
	cfg.Visitor = func(ctx context.Context) string { id, _ := ctx.Value(visitorKey{}).(string); return id }
	cfg.Observe = func(context.Context, middleware.Event) {}
	d := New(cfg)
	r := chi.NewRouter()
	r.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitorKey{}, r.Header.Get("Visitor"))))
		})
	})
	r.Get("/events", d.Events)
	d.Routes(r)
	server := httptest.NewUnstartedServer(r)
	server.Config.ReadTimeout = serverTimeout
	server.Config.WriteTimeout = serverTimeout
	server.Start()
	t.Cleanup(func() {
		d.CloseStreams()
		server.Close()
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return server.URL
}

func do(t *testing.T, method, url, visitor, key, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Visitor", visitor)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// The stream outlives the server's timeouts, has heartbeats, and has all that happened and then what happens.
func TestStream(t *testing.T) {
	t.Parallel()
	url := serve(t, Config{Work: time.Millisecond, Heartbeat: 1100 * time.Millisecond})
	if res := do(t, "POST", url+"/demo/protected/orders", "ann", "k", `{"quantity":2}`); res.StatusCode != http.StatusCreated {
		t.Fatalf("order: got %d, want 201", res.StatusCode)
	}
	lines := bufio.NewScanner(do(t, "GET", url+"/events", "ann", "", "").Body)
	next := func() (m message) {
		t.Helper()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := json.Unmarshal([]byte(data), &m); err != nil {
					t.Fatal(err)
				}
				return m
			}
		}
		t.Fatalf("the stream has ended: %v", lines.Err())
		return m
	}
	first := next()
	if !first.All || len(first.Records) != 1 || first.Wishes != 1 || first.Totals[Protected] != (total{1, 2 * price}) {
		t.Errorf("the first message: got %+v, want one order of 2", first)
	}
	for beats := 0; beats < 3 && lines.Scan(); {
		if lines.Text() == ": still here" {
			beats++
		}
	}
	do(t, "POST", url+"/demo/protected/orders", "bob", "k", `{"quantity":1}`)
	do(t, "POST", url+"/demo/protected/orders", "ann", "k", `{"quantity":2}`)
	for m := next(); ; m = next() {
		if r := m.Records[0]; r.Try != 2 || m.All || m.Totals[Protected].Orders != 1 {
			t.Fatalf("a replay: got %+v", m)
		} else if r.State == "done" {
			if r.Outcome != middleware.Replayed || r.Status != http.StatusCreated || r.RunStart != 0 {
				t.Errorf("a replay: got %+v", r)
			}
			return
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	url := serve(t, Config{Work: time.Millisecond})
	for name, test := range map[string]struct {
		path, visitor, body string
		want                int
	}{
		"no visitor":         {"/demo/unprotected/orders", "", `{"quantity":1}`, 403},
		"start over, nobody": {"/demo/start-over", "", ``, 403},
		"none":               {"/demo/unprotected/orders", "ann", `{"quantity":0}`, 400},
		"many":               {"/demo/protected/orders", "ann", `{"quantity":10}`, 400},
		"no JSON":            {"/demo/unprotected/orders", "ann", `quantity=1`, 400},
		"long":               {"/demo/unprotected/orders", "ann", strings.Repeat(" ", maxBody+1), 413},
		"a real Redis":       {"/demo/redis/empty", "ann", ``, 404}, // it is not the demo's to empty
	} {
		if got := do(t, "POST", url+test.path, test.visitor, name, test.body).StatusCode; got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
}

func key(i int) [sha256.Size]byte { return sha256.Sum256([]byte(strconv.Itoa(i))) }

// What a visitor can make the server keep has bounds.
func TestBounds(t *testing.T) {
	t.Parallel()
	s := newShop()
	for i := range maxWishes {
		s.end(s.begin(Unprotected, key(i), 1, 1), 201, false)
	}
	if s.begin(Unprotected, key(maxWishes), 1, 1) != nil {
		t.Error("a wish too many was begun")
	}
	if len(s.records) != maxRecords || s.active != 0 {
		t.Errorf("records: got %d, want %d; running: %d", len(s.records), maxRecords, s.active)
	}
	for range maxStreams {
		if s.subscribe() == nil {
			t.Error("a stream was refused")
		}
	}
	if s.subscribe() != nil {
		t.Error("a stream too many was opened")
	}
	s.startOver()
	if s.begin(Unprotected, key(maxWishes), 1, 1) == nil {
		t.Error("a wish was refused after starting over")
	}
}

// There is a bound on shops. The one that was left first makes room. If all are watched, it is the one that was used first,
// whose streams end, but none in which a request runs.
//
// fault: one client opens a thousand streams of events. Expected: a new visitor gets a shop
func TestShops(t *testing.T) {
	t.Parallel()
	var g registry
	for i := range maxShops {
		g.of(strconv.Itoa(i))
	}
	watched, left := g.of("0"), g.shops["1"]
	watched.subscribe()
	left.used = time.Now().Add(-time.Second)
	if g.of("new") == nil || g.shops["1"] != nil || len(g.shops) != maxShops {
		t.Errorf("a new visitor: %d shops, and the first that was left is %v", len(g.shops), g.shops["1"])
	}
	streams := map[string]chan []byte{}
	for visitor, s := range g.shops {
		streams[visitor] = s.subscribe()
	}
	running := g.of("2")
	running.active, running.used = 1, time.Now().Add(-time.Hour)
	g.shops["3"].used = time.Now().Add(-time.Minute)
	if g.of("another") == nil || g.shops["3"] != nil || g.shops["2"] != running || len(g.shops) != maxShops {
		t.Errorf("a visitor while all shops are watched: %d shops, the one used first is %v", len(g.shops), g.shops["3"])
	}
	<-streams["3"] // all that there was
	if _, open := <-streams["3"]; open {
		t.Error("the stream of the shop that made room goes on")
	}
	for _, s := range g.shops {
		s.active = 1
	}
	if g.of("one more") != nil {
		t.Error("a shop too many was opened")
	}
	for _, s := range g.shops {
		s.active, s.used = 0, time.Now().Add(-2*maxIdle)
		clear(s.streams)
	}
	g.swept = time.Time{}
	if g.of("0"); len(g.shops) != 1 {
		t.Errorf("after a while: %d shops, want 1", len(g.shops))
	}
}
