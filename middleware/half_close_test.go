package middleware_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// A client that shuts down its write side after the request still reads. net/http ends the request's context, as if the
// client had disconnected. A run goes on and its response is sent. A duplicate does not wait: it is told to retry, and gives
// its place to another.
//
// fault: the client shuts down its write side -> the run's response is sent; a duplicate gets 409 at once
func TestHalfClosedConnection(t *testing.T) {
	t.Parallel()
	g := newGate()
	s := serveWaiting(t, redistest.Mini(t).Client(t), behind(t, g, payOnce()), middleware.WithMaxWaiters(1))
	ask := func() (read func() *http.Response) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := s.request().Write(conn); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		return func() *http.Response {
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp
		}
	}
	first := ask()
	<-g.entered
	for range 3 {
		resp := ask()()
		e := s.event()
		if resp.StatusCode != http.StatusConflict || resp.Header.Get("Retry-After") == "" || e.Outcome != middleware.InFlight || e.Err != nil {
			t.Errorf("a duplicate got %d, %+v", resp.StatusCode, e)
		}
	}
	close(g.open)
	if resp := first(); resp.StatusCode != http.StatusCreated {
		t.Errorf("the first got %d", resp.StatusCode)
	}
	if e := s.event(); e.Outcome != middleware.Executed {
		t.Errorf("%+v, want executed", e)
	}
	s.wantRuns(1)
}
