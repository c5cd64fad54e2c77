package otelonce

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"

	"github.com/onceguard/onceguard/contrib/internal/words"
	"github.com/onceguard/onceguard/middleware"
)

const (
	outcomeKey   = attribute.Key("onceguard.outcome")
	operationKey = attribute.Key("onceguard.operation")
	phaseKey     = attribute.Key("onceguard.phase")
	namespaceKey = attribute.Key("onceguard.namespace")
)

// metrics are the instruments of requests.
type metrics struct {
	requests, shadow     metric.Int64Counter
	store, wait, handler metric.Float64Histogram
	size                 metric.Int64Histogram
}

// labels are the values of a measurement's attributes; "" is no attribute.
type labels struct {
	outcome                  string
	method, route, operation string // of a request or, operation alone, of a call of once.Do
	class                    string // error.type
}

func newMetrics(meter metric.Meter) *metrics {
	seconds := func(name, description string, buckets []float64) metric.Float64Histogram {
		return made(meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(buckets...)))
	}
	counter := func(name, description string) metric.Int64Counter {
		return made(meter.Int64Counter(name, metric.WithUnit("{request}"), metric.WithDescription(description)))
	}
	return &metrics{
		requests: counter("onceguard.requests", "Requests whose method is protected, by what happened to them."),
		shadow:   counter("onceguard.shadow.requests", "Requests with WithShadow, by what would have happened to them."),
		store:    seconds("onceguard.store.duration", "Duration of the calls to Redis, and to the journal.", words.StoreBuckets),
		wait: seconds("onceguard.wait.duration", "How long duplicates waited for the response of the first request.",
			words.HandlerBuckets),
		handler: seconds("onceguard.handler.duration", "Duration of the handler.", words.HandlerBuckets),
		size: made(meter.Int64Histogram("onceguard.record.size", metric.WithUnit("By"),
			metric.WithDescription("Size of the response as it is stored or was replayed: compressed, encrypted."),
			metric.WithExplicitBucketBoundaries(words.SizeBuckets...))),
	}
}

// made reports an error of a meter, whose instrument then measures nothing.
func made[I any](instrument I, err error) I {
	if err != nil {
		otel.Handle(err)
	}
	return instrument
}

// record measures a request.
func (m *metrics) record(ctx context.Context, e *middleware.Event, l labels) {
	if of := metric.WithAttributeSet(requestAttributes(l)); e.Shadow { // must not raise an alert
		m.shadow.Add(ctx, 1, of)
	} else {
		m.requests.Add(ctx, 1, of)
		if !e.Handler.Start.IsZero() {
			m.handler.Record(ctx, e.Handler.Duration.Seconds(), of)
		}
		if !e.Wait.Start.IsZero() {
			m.wait.Record(ctx, e.Wait.Duration.Seconds(), of)
		}
		if e.Size > 0 {
			m.size.Record(ctx, int64(e.Size), of)
		}
	}
	failed := words.FailedPhase(e)
	for _, p := range words.PhasesOf(e) {
		if p.Start.IsZero() || p.Name == words.Wait {
			continue
		}
		of := []attribute.KeyValue{phaseKey.String(p.Name)}
		if p.Name == failed {
			of = append(of, semconv.ErrorTypeKey.String(l.class))
		}
		m.store.Record(ctx, p.Duration.Seconds(), metric.WithAttributes(of...))
	}
}

func requestAttributes(l labels) attribute.Set {
	all := []attribute.KeyValue{outcomeKey.String(l.outcome)}
	for _, a := range []attribute.KeyValue{
		operationKey.String(l.operation), semconv.HTTPRequestMethodKey.String(l.method),
		semconv.HTTPRoute(l.route), semconv.ErrorTypeKey.String(l.class),
	} {
		if a.Value.AsString() != "" {
			all = append(all, a)
		}
	}
	return attribute.NewSet(all...)
}
