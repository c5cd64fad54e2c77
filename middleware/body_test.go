package middleware_test

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/middleware"
)

// The limit of a body works as that of http.MaxBytesReader: a key function gets the limit in every error, and net/http does
// not read the rest.
//
// conformance: 20
func TestLimitIsAsOfMaxBytesReader(t *testing.T) {
	t.Parallel()
	const limit = 20
	reads := func(r *http.Request) (string, error) {
		n, err := io.Copy(io.Discard, r.Body)
		var tooLarge *http.MaxBytesError
		if !errors.As(err, &tooLarge) || tooLarge.Limit != limit || n != limit {
			t.Errorf("read %d, %v, want %d and the limit", n, err, limit)
		}
		if n, again := r.Body.Read(make([]byte, 1)); n != 0 || again != err {
			t.Errorf("once more: %d, %v, want the same error", n, again)
		}
		return "", err
	}
	s := serveKeyed(t, newLocker(t, redistest.Mini(t).Client(t)), reads, payOnce(), middleware.WithMaxBody(limit))
	r := s.request(body("text/plain", "a body of more than twenty bytes"), func(r *http.Request) { r.ContentLength = -1 })
	resp, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
		t.Errorf("status %d, closed %v, want 413 and the end of the connection", resp.StatusCode, resp.Close)
	}
}
