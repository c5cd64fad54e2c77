package promonce_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/contrib/promonce"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

func Example() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	locker := lock.New(client, "payments-api")
	defer func() { _ = locker.Close(context.Background()) }()
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer and promhttp.Handler()

	metrics := promonce.New(registry, locker) // 1
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()),
		middleware.WithObserver(metrics.Observe)) // 2

	mux := http.NewServeMux()
	mux.Handle("POST /payments", once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
	})))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	for range 3 {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":1250}`))
		r.Header.Set("Idempotency-Key", `"8e03978e"`)
		mux.ServeHTTP(httptest.NewRecorder(), r)
	}
	scraped := httptest.NewRecorder()
	mux.ServeHTTP(scraped, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(scraped.Body.String()) {
		if strings.HasPrefix(line, "onceguard_requests_total") || strings.HasPrefix(line, "onceguard_runs_active") {
			fmt.Print(line)
		}
	}
	// Output:
	// onceguard_requests_total{error_type="",locker="payments-api",method="POST",outcome="executed",route="/payments"} 1
	// onceguard_requests_total{error_type="",locker="payments-api",method="POST",outcome="replayed",route="/payments"} 2
	// onceguard_runs_active{locker="payments-api"} 0
}
