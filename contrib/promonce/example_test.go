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

// The id of the trace leads from a point in a dashboard to the request. A service would return
// trace.SpanContextFromContext(ctx).TraceID().String(), and nil if the trace is not sampled.
func ExampleWithExemplar() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	locker := lock.New(client, "payments-api")
	defer func() { _ = locker.Close(context.Background()) }()

	type traceID struct{}
	registry := prometheus.NewRegistry()
	metrics := promonce.New(registry, locker, promonce.WithExemplar(
		func(ctx context.Context, _ middleware.Event) prometheus.Labels {
			id, _ := ctx.Value(traceID{}).(string)
			return prometheus.Labels{"trace_id": id}
		}))

	ctx := context.WithValue(context.Background(), traceID{}, "0af7651916cd43dd8448eb211c80319c")
	metrics.Observe(ctx, middleware.Event{Outcome: middleware.Executed, Method: http.MethodPost}) // the middleware does this

	scrape := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	scrape.Header.Set("Accept", "application/openmetrics-text")
	scraped := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(scraped, scrape)
	for line := range strings.Lines(scraped.Body.String()) {
		if strings.HasPrefix(line, "onceguard_requests_total") {
			exemplar := line[strings.Index(line, "#"):]
			fmt.Println(exemplar[:strings.LastIndex(exemplar, " ")])
		}
	}
	// Output:
	// # {trace_id="0af7651916cd43dd8448eb211c80319c"} 1.0
}
