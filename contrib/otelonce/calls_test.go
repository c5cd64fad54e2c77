package otelonce_test

import (
	"context"
	"slices"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/onceguard/onceguard/contrib/otelonce"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/once"
)

// Calls of once.Do are in the span of their caller, and count as requests.
func TestCalls(t *testing.T) {
	t.Parallel()
	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	locker := lock.New(redistest.Mini(t).Client(t), "payments-1", lock.WithOpTimeout(20*time.Second))
	guard := once.New(locker, otelonce.Calls(otelonce.WithTracerProvider(tracers),
		otelonce.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))))
	for _, want := range []struct{ attributes, children string }{
		{"onceguard.outcome=executed", "onceguard.claim onceguard.settle"}, {"onceguard.outcome=replayed", "onceguard.claim"},
	} {
		ctx, span := tracers.Tracer("consumer").Start(t.Context(), "consume")
		_, _, err := once.Do(ctx, guard, once.Key{Operation: "charge", Scope: "ann", ID: "1"},
			func(context.Context) (int, error) { return 1, nil })
		span.End()
		all := spans.GetSpans()
		spans.Reset()
		consume := all[len(all)-1]
		if err != nil || named(all) != want.children || !slices.Contains(attributeList(consume), want.attributes) {
			t.Errorf("%v; the children are %s, the attributes %v", err, named(all), attributeList(consume))
		}
	}
	var collected metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &collected); err != nil {
		t.Fatal(err)
	}
	for _, m := range collected.ScopeMetrics[0].Metrics {
		if m.Name != "onceguard.requests" {
			continue
		}
		got := points(t, m)
		if want := []string{
			"onceguard.operation=charge,onceguard.outcome=executed: 1", "onceguard.operation=charge,onceguard.outcome=replayed: 1",
		}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if err := locker.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func attributeList(span tracetest.SpanStub) (all []string) {
	for _, a := range span.Attributes {
		all = append(all, string(a.Key)+"="+a.Value.Emit())
	}
	return all
}
