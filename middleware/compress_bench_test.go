package middleware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/middleware"
)

// listing returns a JSON list of payments with n bytes or a few more.
func listing(n int) []byte {
	type payment struct {
		ID       string    `json:"id"`
		Amount   int       `json:"amount"`
		Currency string    `json:"currency"`
		Status   string    `json:"status"`
		Created  time.Time `json:"created_at"`
		Customer string    `json:"customer"`
		Text     string    `json:"description"`
	}
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	list := []byte(`{"data":[`)
	for separator := ""; len(list) < n; separator = "," {
		one, err := json.Marshal(payment{
			ID:       fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", r.Uint32(), r.IntN(1<<16), r.IntN(1<<12), r.IntN(1<<12), r.Uint64N(1<<48)),
			Amount:   r.IntN(100_000),
			Currency: pick("EUR", "USD", "GBP"),
			Status:   pick("succeeded", "pending", "failed"),
			Created:  time.Unix(1_700_000_000+r.Int64N(1e7), 0).UTC(),
			Customer: fmt.Sprintf("cus_%06d", r.IntN(1e6)),
			Text:     fmt.Sprintf("%s %d", pick("invoice", "order", "refund"), r.IntN(1e5)),
		})
		if err != nil {
			panic(err)
		}
		list = append(append(list, separator...), one...)
	}
	return append(list, "]}"...)
}

// BenchmarkCompression is what a response costs in a real Redis, memory and time, with all that belongs to the request.
// The sizes in internal/bench/results/parts.md come from it.
func BenchmarkCompression(b *testing.B) {
	server := redistest.Start(b)
	client := server.Client(b)
	for _, size := range []int{1 << 10, 16 << 10, 256 << 10} {
		response := listing(size)
		for _, form := range []string{"plain", "compressed", "encrypted", "compressed and encrypted"} {
			locker := newLocker(b, client)
			var storageKey string
			opts := append(forms()[form], middleware.WithObserver(func(_ context.Context, e middleware.Event) {
				storageKey = e.Key
			}))
			h := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()), opts...)(
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusCreated)
					_, _ = w.Write(response)
				}))
			request := func(key string) {
				r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(payment))
				r.Header.Set("Idempotency-Key", key)
				w := discard{}
				h.ServeHTTP(w, r)
			}
			name := fmt.Sprintf("%dKiB/%s", size>>10, form)
			n := 0
			b.Run(name+"/write", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					n++
					request(fmt.Sprint(n))
				}
				memory, err := client.MemoryUsage(b.Context(), storageKey).Result()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(memory), "redis-bytes")
				server.FlushAll(b)
			})
			request("k")
			b.Run(name+"/read", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					request("k")
				}
			})
		}
	}
}

// discard is a ResponseWriter that forgets.
type discard http.Header

func (d discard) Header() http.Header         { return http.Header(d) }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
