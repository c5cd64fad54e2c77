package main

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzhttp"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// This module has gzhttp because others need it, so a compressor besides chi's is tested here.
//
// fault: the handler sends a 1xx below a compressor -> what the compressor adds to the header is not stored
func TestEarlyHintsBelowGzhttp(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redisFor(t).addr, ContextTimeoutEnabled: true})
	defer client.Close()
	locker := lock.New(client, "gzhttp")
	defer locker.Close(t.Context())
	text := strings.Repeat("payment ", 500)
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()))
	server := httptest.NewServer(gzhttp.GzipHandler(once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, text)
	}))))
	defer server.Close()
	for i, accepted := range []string{"gzip", "identity", "gzip"} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, nil)
		r.Header.Set("Idempotency-Key", "k")
		r.Header.Set("Accept-Encoding", accepted) // so the Transport does not decode
		res, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body := io.Reader(res.Body)
		if res.Header.Get("Content-Encoding") == "gzip" {
			if body, err = gzip.NewReader(res.Body); err != nil {
				t.Fatal(err)
			}
		}
		got, err := io.ReadAll(body)
		res.Body.Close()
		isReplay, isZipped := res.Header.Get("Idempotent-Replayed") != "", body != io.Reader(res.Body)
		if err != nil || string(got) != text || res.StatusCode != http.StatusCreated || isReplay != (i > 0) || isZipped != (accepted == "gzip") {
			t.Errorf("%d, %s: %d, replay %t, compressed %t, %d bytes, %v", i, accepted, res.StatusCode, isReplay, isZipped, len(got), err)
		}
	}
}
