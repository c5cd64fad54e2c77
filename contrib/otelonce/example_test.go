package otelonce_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/onceguard/onceguard/contrib/otelonce"
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
	spans := tracetest.NewInMemoryExporter() // in a service: an OTLP exporter, by otel.SetTracerProvider
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))

	locker := lock.New(client, "payments-api", otelonce.Untraced())         // 1
	telemetry := otelonce.New(locker, otelonce.WithTracerProvider(tracers)) // 2
	defer func() { _ = locker.Close(context.Background()) }()
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()), telemetry)

	mux := http.NewServeMux()
	mux.Handle("POST /payments", once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
	})))
	handler := traced(tracers, mux) // in a service: otelhttp.NewHandler(mux, "payments-api")

	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":1250}`))
		r.Header.Set("Idempotency-Key", `"8e03978e"`)
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	first := spans.GetSpans()[0].SpanContext.TraceID()
	for _, span := range spans.GetSpans() {
		fmt.Print(span.Name)
		set := attribute.NewSet(span.Attributes...)
		if outcome, ok := set.Value("onceguard.outcome"); ok {
			fmt.Print(": ", outcome.AsString())
		}
		if len(span.Links) == 1 && span.Links[0].SpanContext.TraceID() == first {
			fmt.Print(", linked to the first run")
		}
		fmt.Println()
	}
	// Output:
	// onceguard.claim
	// onceguard.settle
	// POST /payments: executed
	// onceguard.claim
	// POST /payments: replayed, linked to the first run
}

// traced is otelhttp.NewHandler in three lines.
func traced(tracers *sdktrace.TracerProvider, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := tracers.Tracer("example").Start(r.Context(), r.Method+" "+r.URL.Path)
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
