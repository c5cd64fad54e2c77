package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// patience bounds every wait. Only a failing test waits this long.
const patience = 20 * time.Second

// server is a running program with a port of its own.
type server struct {
	t    *testing.T
	url  string
	log  logLines
	http *http.Client // does not follow redirects
	stop func()       // has the effect of SIGTERM
	end  chan error   // what run returned
}

// start runs the program, with an embedded Redis if the URL is empty.
func start(t *testing.T, redisURL string) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{t: t, log: make(logLines, 1000), stop: cancel, end: make(chan error, 1)}
	go func() {
		s.end <- run(ctx, slog.New(slog.NewJSONHandler(s.log, nil)), config{addr: "127.0.0.1:0", redis: redisURL, opTimeout: patience})
		close(s.end)
	}()
	t.Cleanup(func() {
		cancel()
		<-s.end
	})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	s.http = &http.Client{
		Transport:     transport,
		Jar:           newJar(t),
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s.url = "http://" + s.log.next(t, "listening")["addr"].(string)
	return s
}

// newVisitor forgets the cookies.
func (s *server) newVisitor() { s.http.Jar = newJar(s.t) }

func newJar(t *testing.T) http.CookieJar {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return jar
}

// awaitEnd returns the result of run.
func (s *server) awaitEnd() error {
	s.t.Helper()
	select {
	case err := <-s.end:
		return err
	case <-time.After(patience):
		s.t.Fatal("the server did not end")
		return nil
	}
}

// response is a response whose body was read.
type response struct {
	status int
	header http.Header
	body   string
}

func (s *server) do(r *http.Request) response {
	s.t.Helper()
	res, err := s.http.Do(r)
	if err != nil {
		s.t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
		return response{}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Errorf("%s %s: reading the body: %v", r.Method, r.URL.Path, err)
	}
	return response{res.StatusCode, res.Header, string(body)}
}

func (s *server) request(method, path, body string) *http.Request {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// get sends a GET by the user, or without a user if that is empty.
func (s *server) get(user, path string) response {
	s.t.Helper()
	r := s.request("GET", path, "")
	if user != "" {
		r.SetBasicAuth(user, "")
	}
	return s.do(r)
}

// pay sends a POST of JSON to the path by the user.
func (s *server) pay(user, key, path, body string) response {
	s.t.Helper()
	r := s.request("POST", path, body)
	r.SetBasicAuth(user, "")
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return s.do(r)
}

// submit sends a POST of the order form.
func (s *server) submit(fields url.Values) response {
	s.t.Helper()
	r := s.request("POST", "/orders", fields.Encode())
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "text/html,*/*;q=0.8")
	return s.do(r)
}

// listed returns the ids of the user's payments.
func (s *server) listed(user string) []string {
	s.t.Helper()
	var list []payment
	if err := json.Unmarshal([]byte(s.get(user, "/payments").body), &list); err != nil {
		s.t.Fatal(err)
	}
	ids := make([]string, len(list))
	for i, p := range list {
		ids[i] = p.ID
	}
	return ids
}

// logLines receives the lines of a slog.JSONHandler.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// next returns the next line with that message, and drops the lines before it.
func (l logLines) next(t *testing.T, msg string) map[string]any {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line := <-l:
			var fields map[string]any
			if err := json.Unmarshal([]byte(line), &fields); err != nil {
				t.Fatalf("log line %q: %v", line, err)
			}
			if fields["msg"] == msg {
				return fields
			}
		case <-deadline:
			t.Fatalf("no line %q in the log", msg)
		}
	}
}

func TestMalformedRedisURL(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), slog.New(slog.DiscardHandler), config{addr: "127.0.0.1:0", redis: "redis://:hunter2@ host", opTimeout: patience})
	if err == nil || !strings.Contains(err.Error(), "Redis URL") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v, want an error that names the Redis URL, without the password", err)
	}
}

// A request that runs when the process gets SIGTERM is still answered.
func TestShutDownWaitsForRunningRequests(t *testing.T) {
	t.Parallel()
	s := start(t, "")
	answers := make(chan response, 2)
	for range 2 {
		go func() { answers <- s.pay("ann", "k1", "/payments?delay=6s", `{"amount":1250,"currency":"EUR"}`) }()
	}
	if got := <-answers; got.status != http.StatusConflict {
		t.Fatalf("the duplicate: got %d %s, want 409", got.status, got.body)
	}
	s.stop() // the other request is in the handler
	s.log.next(t, "stopping")
	if got := <-answers; got.status != http.StatusCreated {
		t.Errorf("the one that ran: got %d %s, want 201", got.status, got.body)
	}
	if err := s.awaitEnd(); err != nil {
		t.Errorf("run: got %v, want nil", err)
	}
	if conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://")); err == nil {
		conn.Close()
		t.Error("the port still accepts connections")
	}
}

// The server ends although a page is open: nobody waits for its stream of events.
func TestStopsWithOpenStreams(t *testing.T) {
	t.Parallel()
	s := start(t, "")
	s.form()
	res, err := s.http.Get(s.url + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || got != "text/event-stream" {
		t.Fatalf("got %d %s, want 200 text/event-stream", res.StatusCode, got)
	}
	s.stop()
	if err := s.awaitEnd(); err != nil {
		t.Errorf("run: got %v, want nil", err)
	}
	if data, err := io.ReadAll(res.Body); err != nil || !strings.HasPrefix(string(data), "event: shop\ndata: {") {
		t.Errorf("the stream: %q, %v; want one event and its end", data, err)
	}
}

// Without Redis the server starts, and answers 503 on every path that needs Redis.
func TestRedisIsDown(t *testing.T) {
	t.Parallel()
	s := start(t, "redis://127.0.0.1:1")
	if got := s.get("", "/healthz"); got.status != http.StatusServiceUnavailable {
		t.Errorf("healthz: got %d, want 503", got.status)
	}
	got := s.pay("ann", "k1", "/payments", `{"amount":1250,"currency":"EUR"}`)
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("POST: got %d, Retry-After %q; want 503 and a Retry-After", got.status, got.header.Get("Retry-After"))
	}
	if line := s.log.next(t, "protected request"); line["level"] != "ERROR" || line["outcome"] != "store-unavailable" || line["err"] == nil {
		t.Errorf("log: got %v, want ERROR, store-unavailable and an err", line)
	}
	if ids := s.listed("ann"); len(ids) != 0 {
		t.Errorf("paid without Redis: %v", ids)
	}
}

// The server logs at the start why Redis is unfit, and serves nevertheless.
func TestRedisIsUnfit(t *testing.T) {
	t.Parallel()
	s := start(t, "redis://"+redistest.Start(t, "--maxmemory-policy", "volatile-lru").Addr())
	line := s.log.next(t, "redis check")
	if finding, _ := line["finding"].(string); line["level"] != "WARN" || !strings.Contains(finding, "volatile-lru") {
		t.Errorf("log: got %v, want a warning of volatile-lru", line)
	}
	if got := s.pay("ann", "k1", "/payments", `{"amount":1250,"currency":"EUR"}`); got.status != http.StatusCreated {
		t.Errorf("POST: got %d, want 201", got.status)
	}
}
