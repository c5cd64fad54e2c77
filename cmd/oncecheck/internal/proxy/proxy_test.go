package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server records the bodies that it gets, also half ones, and answers each with a number.
type server struct {
	addr string
	mu   sync.Mutex
	got  []string
	done sync.WaitGroup
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := new(server)
	s.done.Add(1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		text := string(body)
		if err != nil {
			text += " (cut)"
		}
		s.mu.Lock()
		s.got = append(s.got, text)
		n := len(s.got)
		if n == 1 {
			s.done.Done()
		}
		s.mu.Unlock()
		fmt.Fprintf(w, "answer %d", n)
	}))
	t.Cleanup(srv.Close)
	s.addr = srv.Listener.Addr().String()
	return s
}

func (s *server) bodies() string {
	s.done.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.got, ", ")
}

// send sends a request through a proxy with the fault, and returns all that comes back.
func send(t *testing.T, s *server, fault proxy.Fault) (raw string, hidden int) {
	t.Helper()
	p, err := proxy.Start(func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", s.addr) }, fault)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\nbody-123"); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := p.Answers()
	if err != nil {
		t.Fatal(err)
	}
	return string(out), len(answers)
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		fault   proxy.Fault
		bodies  string // that the server gets
		answer  string // how what the client gets ends
		isWhole bool
		answers int
	}{
		{"none", proxy.None, "body-123", "answer 1", true, 1},
		{"lose answer", proxy.LoseAnswer, "body-123", "", false, 1},
		{"cut head", proxy.CutHead, "body-123", "", false, 1},
		{"cut body", proxy.CutBody, "body-123", "\r\n\r\nansw", false, 1},
		{"cut request", proxy.CutRequest, "body (cut)", "", false, 0},
		{"twice", proxy.Twice, "body-123, body-123", "answer 2", true, 2},
		{"twice at once", proxy.TwiceAtOnce, "body-123, body-123", "", true, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			raw, answers := send(t, s, c.fault)
			if got := s.bodies(); !strings.HasPrefix(got, strings.TrimSuffix(c.bodies, " (cut)")) || c.fault != proxy.CutRequest && got != c.bodies {
				t.Errorf("the server got %q, want %q", got, c.bodies)
			}
			if !strings.HasSuffix(raw, c.answer) || answers != c.answers {
				t.Errorf("the client got %q and the proxy %d answers, want %q and %d", raw, answers, c.answer, c.answers)
			}
			resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(raw)), nil)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
			}
			if (err == nil) != c.isWhole {
				t.Errorf("the client got %q: %v", raw, err)
			}
		})
	}
}

// A server that does not answer keeps no goroutine once the proxy is closed.
func TestCloseEndsWhatRuns(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	p, err := proxy.Start(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", silent.Addr().String())
	}, proxy.TwiceAtOnce)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	server, err := silent.Accept() // the proxy has sent the request
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	p.Close()
	if out, _ := io.ReadAll(conn); len(out) > 0 {
		t.Errorf("the client got %q", out)
	}
}

// A message longer than the proxy can hold is named, and nothing of it is handed on. fault: a head or a body without end fills the memory.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"head": "HTTP/1.1 200 OK\r\nX-Long: ", "body": "HTTP/1.1 200 OK\r\n\r\n",
		"interim": strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 100) + "HTTP/1.1 200 OK\r\nX-Long: ",
	} {
		endless := io.MultiReader(strings.NewReader(answer), filler{})
		if raw, _, err := proxy.ReadResponse(endless, "POST"); !errors.Is(err, proxy.ErrTooLarge) || len(raw) > 16<<20 {
			t.Errorf("%s: %d bytes, %v", name, len(raw), err)
		}
	}
}

// filler never ends.
type filler struct{}

func (filler) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// A message is a beginning of what came, and its body what net/http takes for the body.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcNEXT",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\nabc\r\n0\r\nX: y\r\n\r\nNEXT",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.0 200 OK\r\n\r\nuntil the end",
		"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999\r\n\r\na",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length:\n 3\r\n\r\nabcNEXT",
		"HTTP/1.1 200 OK\r\nContent-Length : 4\r\nContent-Length: 3\r\n\r\nabcNEXT",
		"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"HTTP/1.1 999", "\r\n\r\n", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, head, err := proxy.ReadResponse(bytes.NewReader(raw), "POST")
		if !bytes.Contains(raw, got) || head > len(got) {
			t.Fatalf("%q is no part of %q, or its head has %d bytes", got, raw, head)
		}
		if err != nil {
			return
		}
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(got)), &http.Request{Method: "POST"})
		if err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.ContentLength >= 0 && !bytes.Equal(got[head:], body) {
			t.Errorf("body %q, net/http has %q: %v", got[head:], body, err)
		}
	})
}

func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "GET / HTTP/1.1\r\n\r\n", "POST / HTTP/1.1\r\nExpect: 100-continue\r\n\r\n",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, head, _ := proxy.ReadRequest(bytes.NewReader(raw))
		if !bytes.HasPrefix(raw, got) || head > len(got) {
			t.Fatalf("%q is no beginning of %q, or its head has %d bytes", got, raw, head)
		}
	})
}
