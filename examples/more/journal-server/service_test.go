package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	euros    = `{"amount":1250,"currency":"EUR"}`
	patience = 20 * time.Second // bounds every wait: only a failing test waits this long
)

// each runs a test with SQLite, and with PostgreSQL and MySQL or MariaDB if ONCEGUARD_POSTGRES and ONCEGUARD_MYSQL have the URLs
// of servers, in which each test has a schema of its own.
func each(t *testing.T, test func(t *testing.T, db string)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, "sqlite:"+filepath.Join(t.TempDir(), "payments.db"))
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		server := os.Getenv("ONCEGUARD_MYSQL")
		if server == "" {
			t.Skip("left out: needs mysql://user:password@host:port in ONCEGUARD_MYSQL")
		}
		d, err := openMySQL(server + "/mysql")
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("journal_server_%d_%d", os.Getpid(), schemas.Add(1))
		exec(t, d.DB, "create schema "+name)
		t.Cleanup(func() {
			if _, err := d.Exec("drop schema " + name); err != nil {
				t.Error(err)
			}
			if err := d.close(); err != nil {
				t.Error(err)
			}
		})
		test(t, server+"/"+name)
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		server := os.Getenv("ONCEGUARD_POSTGRES")
		if server == "" {
			t.Skip("left out: needs the URL of a PostgreSQL server in ONCEGUARD_POSTGRES")
		}
		test(t, schema(t, server))
	})
}

var schemas atomic.Int64

// schema returns the URL of a new schema. It is dropped when the test ends.
func schema(t *testing.T, server string) string {
	t.Helper()
	db, err := sql.Open("pgx", server)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("journal_server_%d_%d", os.Getpid(), schemas.Add(1))
	exec(t, db, "create schema "+name)
	t.Cleanup(func() {
		if _, err := db.Exec("drop schema " + name + " cascade"); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	source, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	query := source.Query()
	query.Set("search_path", name)
	source.RawQuery = query.Encode()
	return source.String()
}

func exec(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// server is a service behind a listener, and a client of it.
type server struct {
	*service
	client
	log *buffer
}

// start runs a service with an embedded Redis. pause replaces the delay that a request asks for, if it is not nil.
func start(t *testing.T, db string, pause func(context.Context, time.Duration) error) *server {
	t.Helper()
	return startWith(t, config{db: db, opTimeout: patience}, pause)
}

func startWith(t *testing.T, cfg config, pause func(context.Context, time.Duration) error) *server {
	t.Helper()
	log := new(buffer)
	s, err := openService(t.Context(), slog.New(slog.NewTextHandler(log, nil)), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if pause != nil {
		s.pause = pause
	}
	h := httptest.NewServer(s.handler())
	t.Cleanup(func() {
		h.Close()
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return &server{s, client{t, h.URL}, log}
}

// buffer is a log in memory.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// client sends requests to a server.
type client struct {
	t   *testing.T
	url string
}

// response is a response whose body was read.
type response struct {
	status   int
	header   http.Header
	body     string
	replayed bool
}

// get sends a GET by the user, or without a user if that is empty.
func (c client) get(user, path string) response {
	c.t.Helper()
	return c.do("GET", user, "", path, "")
}

// pay sends a POST of JSON.
func (c client) pay(user, key, path, body string) response {
	c.t.Helper()
	return c.do("POST", user, key, path, body)
}

func (c client) do(method, user, key, path, body string) response {
	c.t.Helper()
	got, err := c.send(method, user, key, path, body)
	if err != nil {
		c.t.Errorf("%s %s: %v", method, path, err)
	}
	return got
}

// send returns an error if there is no answer.
func (c client) send(method, user, key, path, body string) (response, error) {
	r, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		return response{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	if user != "" {
		r.SetBasicAuth(user, "")
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := (&http.Client{Transport: transport, Timeout: patience}).Do(r)
	if err != nil {
		return response{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return response{res.StatusCode, res.Header, string(text), res.Header.Get("Idempotent-Replayed") == "true"}, err
}

// wantListed fails the test unless the list has the payments of these responses, in their order.
func (c client) wantListed(user string, paid ...response) {
	c.t.Helper()
	want := []payment{}
	for _, r := range paid {
		var p payment
		if err := json.Unmarshal([]byte(r.body), &p); err != nil || p.ID == "" {
			c.t.Fatalf("no payment: %d %s", r.status, r.body)
		}
		want = append(want, p)
	}
	text, err := json.Marshal(want)
	if err != nil {
		c.t.Fatal(err)
	}
	if got := c.get(user, "/payments"); got.status != http.StatusOK || strings.TrimSpace(got.body) != string(text) {
		c.t.Errorf("%s's list: got %d %s, want %s", user, got.status, got.body, text)
	}
}

// wantReplay fails the test unless got is a replay of first.
func (c client) wantReplay(got, first response) {
	c.t.Helper()
	if got.status != first.status || got.body != first.body || !got.replayed {
		c.t.Errorf("got %d %s, replayed %v; want a replay of %d %s", got.status, got.body, got.replayed, first.status, first.body)
	}
}

// wantPaid fails the test unless the response is that of a run.
func (c client) wantPaid(got response) {
	c.t.Helper()
	if got.status != http.StatusCreated || got.replayed {
		c.t.Errorf("got %d %s, replayed %v; want 201", got.status, got.body, got.replayed)
	}
}

// The second start finds the tables, and what the first one has stored in them.
func TestRestart(t *testing.T) {
	each(t, func(t *testing.T, db string) {
		first := start(t, db, nil).pay("ann", "k1", "/payments", euros)
		s := start(t, db, nil) // with another Redis
		s.wantPaid(first)
		s.wantReplay(s.pay("ann", "k1", "/payments", euros), first)
		s.wantListed("ann", first)
	})
}
