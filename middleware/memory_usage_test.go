package middleware_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// What Redis needs for a payment's response beside its body: the key, the headers, the record's own fields, and what
// the server and its allocator add.
func TestMemoryUsage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, test := range []struct {
		name    string
		body    int
		most    int64 // bytes, 0 for no bound
		options []middleware.Option
	}{
		{name: "plain", body: 1 << 10, most: 1<<10 + 400},
		{name: "encrypted", body: 1 << 10, options: []middleware.Option{middleware.WithEncryption(master(1))}},
		// The other rows of the table in internal/bench/results/sizing.md:
		{name: "no body", body: 0, most: 400},
		{name: "200 bytes", body: 200, most: 600},
		{name: "16 KiB", body: 16 << 10, most: 21 << 10},
		{name: "256 KiB", body: 256 << 10, most: 325 << 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			server.FlushAll(t)
			client := server.Client(t)
			locker := lock.New(client, "payments-1", lock.WithOpTimeout(20*time.Second))
			t.Cleanup(func() {
				if err := locker.Close(context.Background()); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			s := serveOn(t, locker, payOnceWith(strings.Repeat("x", test.body)), test.options...)
			s.want(s.send(), http.StatusCreated, middleware.Executed)

			keys := server.Keys(t)
			if len(keys) != 1 {
				t.Fatalf("Redis holds %q, want one key", keys)
			}
			used, err := client.MemoryUsage(t.Context(), keys[0]).Result()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d bytes for a body of %d, under a key of %d", used, test.body, len(keys[0]))
			if test.most > 0 && used > test.most {
				t.Errorf("%d bytes, want at most %d", used, test.most)
			}
		})
	}
}

// payOnceWith answers 201 with three headers and that body.
func payOnceWith(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/payments/1")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(body))
	}
}
