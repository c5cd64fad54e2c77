package onceclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceguard/onceguard/onceclient"
)

// quick makes pauses short. Times are real in these tests.
func quick() onceclient.Option { return onceclient.WithBackoff(time.Millisecond, 5*time.Millisecond) }

// newClient returns a client with a Transport over a connection pool of its own.
func newClient(t *testing.T, opts ...onceclient.Option) *http.Client {
	t.Helper()
	client := &http.Client{Transport: onceclient.New(&http.Transport{}, append([]onceclient.Option{quick()}, opts...)...)}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

func post(t *testing.T, ctx context.Context, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// The server answers before it has read the body, which is then still being sent.
func TestEarlyAnswer(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	var tries atomic.Int64
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if tries.Add(1) < 5 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		if n != size || err != nil {
			t.Errorf("the server read %d bytes, %v", n, err)
		}
	})
	client := newClient(t, onceclient.WithMaxBody(size))
	for name, body := range map[string]io.Reader{
		"GetBody": strings.NewReader(strings.Repeat("x", size)),
		"kept":    io.MultiReader(strings.NewReader(strings.Repeat("x", size))),
	} {
		tries.Store(0)
		if resp, _, err := do(t, client, post(t, t.Context(), server.URL, body)); err != nil || resp.StatusCode != 200 || tries.Load() < 5 {
			t.Errorf("%s: got %v, %v after %d tries", name, resp, err, tries.Load())
		}
	}
}

// 307 and 308 keep the method, and so the key; 303 makes a GET of it, without a key.
func TestRedirects(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 303, 307, 308} {
		var mu sync.Mutex
		var seen []string
		moved := false
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			body, _ := io.ReadAll(r.Body)
			seen = append(seen, r.Method+r.URL.Path+" "+string(body)+r.Header.Get("Idempotency-Key"))
			switch {
			case r.URL.Path == "/old":
				http.Redirect(w, r, "/new", status)
			case !moved:
				moved = true
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		for _, ctx := range []context.Context{t.Context(), onceclient.WithKey(t.Context(), "mine")} {
			seen, moved = nil, false
			resp, _, err := do(t, newClient(t), post(t, ctx, server.URL+"/old", strings.NewReader("book")))
			if err != nil {
				t.Fatal(err)
			}
			first, kept := strings.TrimPrefix(seen[0], "POST/old book"), status > 303
			switch {
			case len(first) < 6:
				t.Errorf("%d: no key in %q", status, seen)
			case kept && (len(seen) != 3 || seen[1] != "POST/new book"+first || seen[2] != seen[1] || resp.StatusCode != 200):
				t.Errorf("%d: the server saw %q", status, seen)
			case !kept && (len(seen) != 2 || seen[1] != "GET/new " || resp.StatusCode != 503):
				t.Errorf("%d: the server saw %q", status, seen)
			}
		}
	}
}

// The body of 101 Switching Protocols stays writable.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := rw.ReadString('\n')
		_, _ = io.WriteString(conn, line)
	})
	req := post(t, t.Context(), server.URL, nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := newClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	w, ok := resp.Body.(io.Writer)
	if resp.StatusCode != 101 || !ok {
		t.Fatalf("got %d with %T", resp.StatusCode, resp.Body)
	}
	_, _ = io.WriteString(w, "hello\n")
	if got, err := io.ReadAll(resp.Body); string(got) != "hello\n" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// What a repetition cannot cure fails at once with the base's error, and nothing was sent.
func TestErrorsThatAreNotRepeated(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request arrived") }))
	server.Config.ErrorLog = discard()
	defer server.Close()
	invalid := post(t, t.Context(), server.URL, strings.NewReader("book"))
	invalid.Header.Set("X-Mine", "two\nlines")
	trailing := post(t, t.Context(), server.URL, strings.NewReader("book"))
	trailing.Trailer = http.Header{"X-Mine": {"two\nlines"}}
	bodiless := post(t, t.Context(), server.URL, nil)
	bodiless.ContentLength = 4
	for name, req := range map[string]*http.Request{
		"untrusted certificate": post(t, t.Context(), server.URL, strings.NewReader("book")),
		"unsupported scheme":    post(t, t.Context(), "shop://orders", strings.NewReader("book")),
		"relative URL":          post(t, t.Context(), "/orders", strings.NewReader("book")),
		"no host":               post(t, t.Context(), "http:///orders", strings.NewReader("book")),
		"invalid header":        invalid,
		"invalid trailer":       trailing,
		"length without a body": bodiless,
	} {
		var tries int
		client := newClient(t, onceclient.WithObserver(func(context.Context, onceclient.Attempt) { tries++ }))
		_, _, err := do(t, client, req)
		var e *onceclient.GaveUpError
		if err == nil || errors.As(err, &e) || tries > 1 {
			t.Errorf("%s: got %v after %d tries", name, err, tries)
		}
	}
}

// A failure closes no idle connections: the base may be shared.
func TestConnectionsOfOthersStay(t *testing.T) {
	t.Parallel()
	base := &closing{}
	client := &http.Client{Transport: onceclient.New(base, quick(), onceclient.WithLimit(20*time.Millisecond))}
	if _, _, err := do(t, client, post(t, t.Context(), "http://shop.test", nil)); err == nil || base.closed != 0 {
		t.Errorf("got %v, closed %d times", err, base.closed)
	}
	client.CloseIdleConnections()
	if base.closed != 1 {
		t.Errorf("closed %d times, want once", base.closed)
	}
}

type closing struct{ closed int }

func (c *closing) RoundTrip(*http.Request) (*http.Response, error) { return nil, errNetwork }
func (c *closing) CloseIdleConnections()                           { c.closed++ }

// A reverse proxy hands the Transport the request that it was sent, with its RequestURI.
func TestReverseProxy(t *testing.T) {
	t.Parallel()
	var keys []string
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		keys = append(keys, r.Header.Get("Idempotency-Key")+" "+r.RequestURI+" "+string(body))
		if len(keys) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	defer base.CloseIdleConnections()
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: onceclient.New(base, quick()), ErrorLog: discard(),
	}
	r := httptest.NewRequest(http.MethodPost, "/orders?a=1", io.NopCloser(strings.NewReader("book")))
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	proxy.ServeHTTP(w, r)
	if want := "k /orders?a=1 book,k /orders?a=1 book"; w.Code != http.StatusOK || strings.Join(keys, ",") != want {
		t.Errorf("got %d, the server %q, want %q", w.Code, keys, want)
	}
}
