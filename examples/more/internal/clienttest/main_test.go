package clienttest_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/onceclient"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// newClient returns a client with a Transport over a connection pool of its own, with short pauses.
func newClient(t *testing.T, opts ...onceclient.Option) *http.Client {
	t.Helper()
	quick := onceclient.WithBackoff(time.Millisecond, 5*time.Millisecond)
	client := &http.Client{Transport: onceclient.New(&http.Transport{}, append([]onceclient.Option{quick}, opts...)...)}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func post(t *testing.T, ctx context.Context, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// do sends the request and returns the response, its body read and closed.
func do(t *testing.T, client *http.Client, req *http.Request) (*http.Response, string, error) {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		if resp != nil {
			t.Errorf("a response beside the error %v", err)
		}
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body), nil
}

func gaveUp(t *testing.T, err error) *onceclient.GaveUpError {
	t.Helper()
	var e *onceclient.GaveUpError
	if !errors.As(err, &e) {
		t.Fatalf("got %v (%T), want a GaveUpError", err, err)
	}
	return e
}

func discard() *log.Logger { return log.New(io.Discard, "", 0) }

// The middleware reads the key that the caller gave: a request with it, written by hand, gets the same response.
func TestKeyOfTheContext(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		server := guarded(t, newLocker(t, b), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
		for _, key := range []string{"order-7", "a b", `say "hi"`, `back\slash`, `\"`, "~", strings.Repeat("k", 255)} {
			first, _, err := do(t, newClient(t), post(t, onceclient.WithKey(t.Context(), key), server.URL, strings.NewReader("book")))
			if err != nil || first.StatusCode != http.StatusCreated || first.Header.Get("Idempotent-Replayed") != "" {
				t.Errorf("%q: got %v, %v", key, first, err)
			}
			again := post(t, t.Context(), server.URL, strings.NewReader("book"))
			again.Header.Set("Idempotency-Key", `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key)+`"`)
			second, _, err := do(t, server.Client(), again)
			if err != nil || second.StatusCode != http.StatusCreated || second.Header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("%q by hand: got %v, %v", key, second, err)
			}
		}
	})
}
