package otelonce_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceguard/onceguard/contrib/otelonce"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// site is a chi route protected by onceguard, with redisotel on the client and a server span around all.
type site struct {
	t       *testing.T
	server  redistest.Backend
	client  *redis.Client
	locker  *lock.Locker
	handler http.Handler
	tracers *sdktrace.TracerProvider
	spans   *tracetest.InMemoryExporter
	reader  *sdkmetric.ManualReader

	telemetry middleware.Option
}

// settings are what a test changes of a site.
type settings struct {
	sampler    sdktrace.Sampler // default: always
	lock       []lock.Option    // default: Untraced
	telemetry  []otelonce.Option
	middleware []middleware.Option
	hook       redis.Hook // outside of redisotel's
}

func newSite(t *testing.T, pay http.HandlerFunc, with settings) *site {
	t.Helper()
	if with.sampler == nil {
		with.sampler = sdktrace.ParentBased(sdktrace.AlwaysSample())
	}
	if with.lock == nil {
		with.lock = []lock.Option{otelonce.Untraced()}
	}
	s := &site{t: t, server: redistest.Mini(t), spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	s.client = s.server.Client(t)
	s.tracers = sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans), sdktrace.WithSampler(with.sampler))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))
	if with.hook != nil {
		s.client.AddHook(with.hook)
	}
	if err := redisotel.InstrumentTracing(s.client, redisotel.WithTracerProvider(s.tracers), redisotel.WithDialFilter(true)); err != nil {
		t.Fatal(err)
	}
	s.locker = lock.New(s.client, "payments-1", append(with.lock, lock.WithOpTimeout(20*time.Second))...)
	s.telemetry = otelonce.New(s.locker, append(with.telemetry,
		otelonce.WithTracerProvider(s.tracers), otelonce.WithMeterProvider(meters))...)
	once := middleware.Idempotency(s.locker, keyfunc.Standard(keyfunc.Anonymous()), append(with.middleware, s.telemetry)...)
	r := chi.NewRouter()
	r.Use(s.serverSpan)
	r.With(once).MethodFunc(http.MethodPost, "/payments/{id}", pay)
	s.handler = r
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.locker.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		_ = meters.Shutdown(ctx)
		_ = s.tracers.Shutdown(ctx)
	})
	return s
}

// serverSpan is what otelhttp does.
func (s *site) serverSpan(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := s.tracers.Tracer("server").Start(r.Context(), "server", trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func (s *site) send(key string) *httptest.ResponseRecorder { return s.sendBody(key, "{}") }

func (s *site) sendBody(key, body string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/payments/7", strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	s.handler.ServeHTTP(w, r)
	return w
}

// trace returns the spans since the last call, the server span first.
func (s *site) trace() (server tracetest.SpanStub, others tracetest.SpanStubs) {
	s.t.Helper()
	all := s.spans.GetSpans()
	s.spans.Reset()
	for _, span := range all {
		if span.Name == "server" {
			server = span
		} else {
			others = append(others, span)
		}
	}
	return server, others
}

// named returns the names of the spans, in the order of their start.
func named(spans tracetest.SpanStubs) string {
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	var names []string
	for _, span := range spans {
		if strings.HasPrefix(span.Name, "onceguard.") {
			names = append(names, span.Name)
		}
	}
	return strings.Join(names, " ")
}

// attributesOf returns attributes in the form a=b, sorted.
func attributesOf(all []attribute.KeyValue) string {
	set := attribute.NewSet(all...)
	return set.Encoded(attribute.DefaultEncoder())
}

// metrics returns what the reader collects, by name.
func (s *site) metrics() map[string]metricdata.Metrics {
	s.t.Helper()
	var collected metricdata.ResourceMetrics
	if err := s.reader.Collect(context.Background(), &collected); err != nil {
		s.t.Fatal(err)
	}
	all := map[string]metricdata.Metrics{}
	for _, scope := range collected.ScopeMetrics {
		for _, m := range scope.Metrics {
			all[m.Name] = m
		}
	}
	return all
}

func created(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }
