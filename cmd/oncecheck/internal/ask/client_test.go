package ask_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// serve serves the handler.
func serve(t *testing.T, handler http.HandlerFunc) ask.Request {
	t.Helper()
	server := httptest.NewServer(handler)
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

func newClient(timeout time.Duration, parallel, budget int) *ask.Client {
	return ask.NewClient(timeout, parallel, budget, false)
}

const patience = 20 * time.Second

func TestDo(t *testing.T) {
	t.Parallel()
	r := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Seen", strings.Join([]string{r.Method, r.RequestURI, r.Header.Get("X-Test"), string(body)}, " "))
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "answer")
	})
	client := newClient(patience, 2, 10)
	for _, c := range []struct {
		name   string
		change func(*ask.Request)
		want   string
	}{
		{"plain", func(*ask.Request) {}, "POST /pay?a=1 one body"},
		{"no body", func(r *ask.Request) { *r = r.Bare("GET") }, "GET /pay?a=1 one"},
		{"query", func(r *ask.Request) { *r = r.Query("b=2") }, "POST /pay?a=1&b=2 one body"},
		{"header", func(r *ask.Request) { *r = r.With("x-test", "two") }, "POST /pay?a=1 two body"},
	} {
		sent := r
		c.change(&sent)
		e := client.Do(t.Context(), sent)
		if e.Err != nil || e.Response.Status != 201 || string(e.Response.Body) != "answer" || e.Response.Header.Get("X-Seen") != c.want {
			t.Errorf("%s: %v %+v, want %q", c.name, e.Err, e.Response, c.want)
		}
	}
	if got := r.Header[0].Value; got != "one" {
		t.Errorf("the request that was changed is the same: %s", got)
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
	e := newClient(patience, 1, 1).DoNotify(t.Context(), r, func() {
		if got := <-sent; !strings.HasSuffix(got, "\r\n\r\nbody") {
			t.Errorf("%q had been sent", got)
		}
	})
	if !e.Success() {
		t.Error(e)
	}
}

// No more are sent than the budget has, nor at a time than parallel. One that cannot be sent does not keep the others back.
func TestLimits(t *testing.T) {
	t.Parallel()
	var now, most, served atomic.Int32
	r := serve(t, func(http.ResponseWriter, *http.Request) {
		if n := now.Add(1); n > 2 {
			most.Store(n)
		}
		served.Add(1)
		now.Add(-1)
	})
	dead := r
	dead.URL = &url.URL{Scheme: "http", Host: "127.0.0.1:1", Path: "/"}
	client := newClient(patience, 2, 30)
	client.Together(t.Context(), []ask.Request{dead, r})
	var done sync.WaitGroup
	for range 30 {
		done.Go(func() { client.Do(t.Context(), r) })
	}
	done.Wait()
	if e := client.Leave(t.Context(), r, 0); !errors.Is(e.Err, ask.ErrBudget) {
		t.Error(e)
	}
	if served.Load() != 29 || most.Load() > 0 || client.Left() != 0 {
		t.Errorf("%d served, %d at a time, %d left", served.Load(), most.Load(), client.Left())
	}
}

func TestNoAnswer(t *testing.T) {
	t.Parallel()
	r := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Test") != "cut" {
			_, _ = io.ReadAll(r.Body) // before which nobody notices that the client leaves
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
	})
	if e := newClient(patience, 1, 10).Do(t.Context(), r.With("X-Test", "cut")); e.Err == nil || e.Response != nil {
		t.Errorf("cut: %v", e)
	}
	if e := newClient(50*time.Millisecond, 1, 1).Do(t.Context(), r); e.Err == nil || !strings.Contains(e.Err.Error(), "within 50ms") {
		t.Errorf("timeout: %v", e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if e := newClient(patience, 1, 1).Do(ctx, r); !errors.Is(e.Err, context.Canceled) {
		t.Errorf("cancelled: %v", e)
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
		if e := newClient(patience, 1, 1).Do(t.Context(), r); e.Err == nil || !strings.Contains(e.Err.Error(), "more than 1 MiB") {
			t.Errorf("%q: %s", begin, e)
		}
		if n := <-sent; n >= 100<<20 {
			t.Errorf("%q: all %d bytes were taken", begin, n)
		}
	}
}
