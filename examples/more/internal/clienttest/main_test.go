package clienttest_test

import (
	"context"
	"io"
	"log"
	"net/http"
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

func discard() *log.Logger { return log.New(io.Discard, "", 0) }
