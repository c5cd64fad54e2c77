package ask_test

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/onceguard/onceguard/cmd/oncecheck/internal/ask"
)

// A client that leaves has sent everything.
func TestLeave(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	r := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- string(body)
	})
	if e := newClient(t, patience, 1, 1).Leave(t.Context(), r, 0); e.Response != nil || e.Sent.IsZero() {
		t.Error(e)
	}
	select {
	case body := <-got:
		if body != "body" {
			t.Errorf("%q", body)
		}
	case <-time.After(patience):
		t.Error("the request did not arrive")
	}
	if e := newClient(t, patience, 1, 1).Leave(t.Context(), r, patience); !errors.Is(e.Err, ask.ErrAnswered) {
		t.Error(e)
	}
}

// A request that is cut has come to its end when Cut returns, with half of its body.
func TestCut(t *testing.T) {
	t.Parallel()
	var got string
	var failed error
	ended := make(chan struct{})
	r := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		defer close(ended)
		body, err := io.ReadAll(r.Body)
		got, failed = string(body), err
	})
	if e := newClient(t, patience, 1, 1).Cut(t.Context(), r); e.Response != nil || e.Sent.IsZero() || e.Err == nil {
		t.Error(e)
	}
	<-ended
	if got != "bo" || !errors.Is(failed, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", got, failed)
	}
}

// Over TLS too, with HTTP/2 if the server has it. A certificate that nobody has signed is refused unless asked otherwise.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_,
			_ = io.WriteString(w, r.Proto)
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	r := ask.Request{Method: "POST", URL: parse(t, server.URL)}
	over2 := r
	over2.HTTP2 = true
	for _, insecure := range []bool{true, false} {
		client := ask.NewClient(patience, 1, 10, insecure)
		t.Cleanup(client.Close)
		for sent, want := range map[*ask.Request]string{&r: "HTTP/1.1", &over2: "HTTP/2.0"} {
			if e := client.Do(t.Context(), *sent); e.Success() != insecure || insecure && string(e.Response.Body) != want {
				t.Errorf("insecure %v: %s, want %s", insecure, e, want)
			}
		}
	}
}
