package ask_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// serve serves the handler, over HTTP/1.1 and HTTP/2.
func serve(t *testing.T, handler http.HandlerFunc) ask.Request {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return ask.Request{Method: "POST", URL: parse(t, server.URL+"/pay?a=1"), Body: []byte("body"),
		Header: []ask.Field{{Name: "X-Test", Value: "one"}}}
}

// listen has one connection served.
func listen(t *testing.T, serve func(net.Conn)) ask.Request {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		if conn, err := listener.Accept(); err == nil {
			defer conn.Close()
			serve(conn)
		}
	}()
	return ask.Request{Method: "POST", URL: parse(t, "http://"+listener.Addr().String()), Body: []byte("body!")}
}

func parse(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func newClient(t *testing.T, timeout time.Duration, parallel, budget int) *ask.Client {
	t.Helper()
	c := ask.NewClient(timeout, parallel, budget, false)
	t.Cleanup(c.Close)
	return c
}

const patience = 20 * time.Second

func TestDo(t *testing.T) {
	t.Parallel()
	r := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("X-Seen", strings.Join(append([]string{r.Proto, r.Method, r.RequestURI, r.Header.Get("X-Test"),
			string(body)}, r.TransferEncoding...), " "))
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "answer")
		w.Header().Set("X-Sum", "42")
	})
	client := newClient(t, patience, 2, 10)
	for _, c := range []struct {
		name   string
		change func(*ask.Request)
		want   string
	}{
		{"plain", func(*ask.Request) {}, "HTTP/1.1 POST /pay?a=1 one body"},
		{"chunked", func(r *ask.Request) { r.Chunked = true }, "HTTP/1.1 POST /pay?a=1 one body chunked"},
		{"expect", func(r *ask.Request) { r.Expect = true }, "HTTP/1.1 POST /pay?a=1 one body"},
		{"HTTP/2", func(r *ask.Request) { r.HTTP2 = true }, "HTTP/2.0 POST /pay?a=1 one body"},
		{"no body", func(r *ask.Request) { *r = r.Bare("GET") }, "HTTP/1.1 GET /pay?a=1 one"},
		{"query", func(r *ask.Request) { *r = r.Query("b=2") }, "HTTP/1.1 POST /pay?a=1&b=2 one body"},
		{"header", func(r *ask.Request) { *r = r.With("x-test", "two") }, "HTTP/1.1 POST /pay?a=1 two body"},
	} {
		sent := r
		c.change(&sent)
		e := client.Do(t.Context(), sent)
		if e.Err != nil || e.Response.Status != 201 || string(e.Response.Body) != "answer" || e.Response.Header.Get("X-Seen") != c.want {
			t.Errorf("%s: %v %+v, want %q", c.name, e.Err, e.Response, c.want)
		} else if got := e.Response.Trailer.Get("X-Sum"); got != "42" {
			t.Errorf("%s: trailer %q", c.name, got)
		}
	}
	if got := r.Header[0].Value; got != "one" {
		t.Errorf("the request that was changed is the same: %s", got)
	}
}

// A header goes over the wire as it is written, so that malformed ones can be sent.
func TestHeaderAsWritten(t *testing.T) {
	t.Parallel()
	sent := make(chan string, 1)
	r := listen(t, func(conn net.Conn) {
		head := make([]byte, 1000)
		n, _ := conn.Read(head)
		sent <- string(head[:n])
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
	})
	r.Header, r.Body = []ask.Field{{Name: "idempotency-KEY", Value: "\"é\tx"}, {Name: "idempotency-KEY", Value: ""}}, nil
	if e := newClient(t, patience, 1, 1).Do(t.Context(), r); e.Err != nil || e.Response.Status != 204 {
		t.Fatal(e)
	}
	if got := <-sent; !strings.Contains(got, "\r\nidempotency-KEY: \"é\tx\r\nidempotency-KEY: \r\n") {
		t.Errorf("%q", got)
	}
}

// The last bytes are sent when all others have been: no handler that reads its body ends before all have begun.
func TestTogether(t *testing.T) {
	t.Parallel()
	const n = 20
	arrived := make(chan bool, n)
	r := serve(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- true
		_, _ = io.ReadAll(r.Body)
	})
	requests := make([]ask.Request, n)
	for i := range requests {
		requests[i] = r
	}
	answers := newClient(t, patience, n, n).Together(t.Context(), requests)
	for _, e := range answers {
		if !e.Success() {
			t.Fatal(e)
		}
	}
	if len(arrived) != n || ask.Overlapped(answers) < 1 {
		t.Errorf("%d arrived, %d overlapped", len(arrived), ask.Overlapped(answers))
	}
}

// When DoNotify says so, all but the last byte has been sent.
func TestDoNotify(t *testing.T) {
	t.Parallel()
	sent := make(chan string)
	r := listen(t, func(conn net.Conn) {
		// For a byte that must not come.
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		got, _ := io.ReadAll(conn)
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		sent <- string(got)
	})
	e := newClient(t, patience, 1, 1).DoNotify(t.Context(), r, func() {
		if got := <-sent; !strings.HasSuffix(got, "\r\n\r\nbody") {
			t.Errorf("%q had been sent", got)
		}
	})
	if !e.Success() {
		t.Error(e)
	}
}

// A request that cannot be sent does not keep the others from being sent.
func TestTogetherWithOneThatFails(t *testing.T) {
	t.Parallel()
	r := serve(t, func(http.ResponseWriter, *http.Request) {})
	dead := r
	dead.URL = &url.URL{Scheme: "http", Host: "127.0.0.1:1", Path: "/"}
	answers := newClient(t, patience, 3, 2).Together(t.Context(), []ask.Request{dead, r, r})
	succeeded, refused := 0, 0
	for _, e := range answers {
		if e.Success() {
			succeeded++
		}
		if errors.Is(e.Err, ask.ErrBudget) {
			refused++
		}
	}
	if succeeded > 2 || refused != 1 {
		t.Errorf("%v", answers)
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	var served atomic.Int32
	r := serve(t, func(http.ResponseWriter, *http.Request) { served.Add(1) })
	client := newClient(t, patience, 1, 3)
	for i := range 5 {
		e := client.Do(t.Context(), r)
		if spent := errors.Is(e.Err, ask.ErrBudget); spent != (i >= 3) {
			t.Errorf("request %d: %v", i, e.Err)
		}
	}
	client.Leave(t.Context(), r, 0)
	if served.Load() != 3 || client.Left() != 0 {
		t.Errorf("%d served, %d left", served.Load(), client.Left())
	}
}

func TestParallel(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int32
	r := serve(t, func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		now.Add(-1)
	})
	client := newClient(t, patience, 3, 100)
	done := make(chan bool)
	for range 30 {
		go func() {
			client.Do(t.Context(), r)
			done <- true
		}()
	}
	for range 30 {
		<-done
	}
	if most.Load() > 3 {
		t.Errorf("%d at a time", most.Load())
	}
}

func TestNoAnswer(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	r := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("X-Test") {
		case "abort":
			panic(http.ErrAbortHandler)
		case "cut":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
		default:
			<-stop
		}
	})
	defer close(stop)
	client := newClient(t, patience, 1, 10)
	for _, what := range []string{"abort", "cut"} {
		if e := client.Do(t.Context(), r.With("X-Test", what)); e.Err == nil || e.Response != nil || e.Success() {
			t.Errorf("%s: %v", what, e)
		}
	}
	if e := newClient(t, 50*time.Millisecond, 1, 1).Do(t.Context(), r); e.Err == nil || !strings.Contains(e.Err.Error(), "within 50ms") {
		t.Errorf("timeout: %v", e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if e := client.Do(ctx, r); !errors.Is(e.Err, context.Canceled) {
		t.Errorf("cancelled: %v", e)
	}
}

// Fifty long bodies at once are compared whole, and of each only the beginning is kept. fault: fifty bodies of 60 MiB take 4 GiB.
// Not parallel: it counts allocations.
func TestLongBodies(t *testing.T) {
	const n, size = 50, 4 << 20
	chunk := bytes.Repeat([]byte("x"), 32<<10)
	r := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for range size/len(chunk) - 1 {
			_, _ = w.Write(chunk)
		}
		last := bytes.Clone(chunk)
		copy(last[len(last)-1:], r.Header.Get("X-Test"))
		_, _ = w.Write(last)
	})
	client := newClient(t, patience, n, 2*n)
	requests := slices.Repeat([]ask.Request{r}, n)
	requests[1] = r.With("X-Test", "2")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	answers := client.Together(t.Context(), requests)
	runtime.ReadMemStats(&after)
	for i, e := range answers {
		if !e.Success() || e.Response.Size != size || e.Response.IsWhole() || e.Response.SameBody(answers[0].Response) != (i != 1) {
			t.Fatalf("%d: %s, %d bytes", i, e, e.Response.Size)
		}
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > n*size/4 {
		t.Errorf("%d MiB were allocated for %d MiB", got>>20, n*size>>20)
	}
	r.Whole = true
	if e := client.Do(t.Context(), r); !e.Success() || !e.Response.IsWhole() || len(e.Response.Body) != size {
		t.Errorf("%s", e)
	}
}

// A head without end is cut off, in the final response and in those before it. fault: it takes 5 GiB in ten seconds.
func TestEndlessHead(t *testing.T) {
	t.Parallel()
	for begin, piece := range map[string]string{
		"HTTP/1.1 200 OK\r\nX: ": strings.Repeat("x", 40_000), "": strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 1000),
	} {
		sent := make(chan int, 1)
		r := listen(t, func(conn net.Conn) {
			n := 0
			_, err := io.WriteString(conn, begin)
			for ; err == nil && n < 100<<20; n += len(piece) {
				_, err = io.WriteString(conn, piece)
			}
			sent <- n
		})
		if e := newClient(t, patience, 1, 1).Do(t.Context(), r); e.Err == nil || !strings.Contains(e.Err.Error(), "more than 1 MiB") {
			t.Errorf("%q: %s", begin, e)
		}
		if n := <-sent; n >= 100<<20 {
			t.Errorf("%q: all %d bytes were taken", begin, n)
		}
	}
}
