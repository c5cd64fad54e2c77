package ask_test

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

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
	if e := newClient(patience, 1, 1).Leave(t.Context(), r, 0); e.Response != nil || e.Sent.IsZero() {
		t.Error(e)
	}
	if body := <-got; body != "body" {
		t.Errorf("%q", body)
	}
	if e := newClient(patience, 1, 1).Leave(t.Context(), r, patience); !errors.Is(e.Err, ask.ErrAnswered) {
		t.Error(e)
	}
}

// Over TLS a certificate that nobody has signed is refused unless asked otherwise.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	for _, insecure := range []bool{true, false} {
		e := ask.NewClient(patience, 1, 1, insecure).Do(t.Context(), ask.Request{Method: "POST", URL: parse(t, server.URL)})
		if (e.Response != nil) != insecure {
			t.Errorf("insecure %v: %s", insecure, e)
		}
	}
}
