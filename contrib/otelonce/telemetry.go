package otelonce

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceguard/onceguard/contrib/internal/words"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/once"
)

// scope is the name of the tracer and of the meter.
const scope = "github.com/onceguard/onceguard/contrib/otelonce"

// Option changes a default of [New].
type Option func(*options)

type options struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
	route   func(context.Context, middleware.Event) string
}

// WithTracerProvider sets the provider of spans. The default is [otel.GetTracerProvider]. It panics if p is nil.
func WithTracerProvider(p trace.TracerProvider) Option {
	if p == nil {
		panic("otelonce.WithTracerProvider: the provider is nil")
	}
	return func(o *options) { o.tracers = p }
}

// WithMeterProvider sets the provider of instruments. The default is [otel.GetMeterProvider]. It panics if p is nil.
func WithMeterProvider(p metric.MeterProvider) Option {
	if p == nil {
		panic("otelonce.WithMeterProvider: the provider is nil")
	}
	return func(o *options) { o.meters = p }
}

// WithRoute sets the function that returns http.route, "" if it is not known. The default is the path of
// [middleware.Event].Pattern. f must return a pattern and never a path, because each value is a time series. It gets
// the context of the request, and is called concurrently. WithRoute panics if f is nil.
//
// In older versions of chi a sub-router puts only its own part into Pattern. The whole route is
//
//	otelonce.WithRoute(func(ctx context.Context, _ middleware.Event) string {
//		return chi.RouteContext(ctx).RoutePattern()
//	})
func WithRoute(f func(context.Context, middleware.Event) string) Option {
	if f == nil {
		panic("otelonce.WithRoute: f is nil")
	}
	return func(o *options) { o.route = f }
}

// New returns an option for every [middleware.Idempotency] on l, and measures l. Shut the meter provider down after
// [lock.Locker.Close], so that its last export has what Close did. Call New once for each Locker: a second call would count
// its leases twice. New passes a provider's error to [otel.Handle], and does
// not measure what failed. New panics if l or an option is nil.
//
// The option combines a [middleware.WithObserver] and a [middleware.WithTraceparent]. The middleware also calls the
// function of another WithObserver beside it, such as a log.
func New(l *lock.Locker, opts ...Option) middleware.Option {
	if l == nil {
		panic("otelonce.New: the locker is nil")
	}
	meter, t := newTelemetry("otelonce.New", opts)
	measure(l, meter)
	return both(middleware.WithObserver(t.observe), middleware.WithTraceparent(traceparent))
}

// Calls returns an option for every [once.New], and so for package grpconce. A call of once.Do is measured as a
// request: it has the attribute onceguard.operation, the Operation of its key, instead of a method and a route. The
// span is the one in the context of the call; if several calls share one, the attributes of the last one stay. Calls
// does not measure the Locker: a program without a middleware calls [New] for that, and need not use what it returns.
// The function of [WithRoute] is not called. Calls panics if an option is nil.
func Calls(opts ...Option) once.Option {
	_, t := newTelemetry("otelonce.Calls", opts)
	return once.WithObserver(t.observeCall)
}

func newTelemetry(caller string, opts []Option) (metric.Meter, *telemetry) {
	o := options{tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider(), route: words.Route}
	for _, opt := range opts {
		if opt == nil {
			panic(caller + ": an option is nil")
		}
		opt(&o)
	}
	meter := o.meters.Meter(scope)
	return meter, &telemetry{tracer: o.tracers.Tracer(scope), route: o.route, metrics: newMetrics(meter)}
}

// both returns one option that applies two. O is the type of the middleware's options, which is not exported.
func both[O any](a, b func(O)) func(O) {
	return func(o O) {
		a(o)
		b(o)
	}
}

// telemetry observes requests and calls.
type telemetry struct {
	tracer  trace.Tracer
	route   func(context.Context, middleware.Event) string
	metrics *metrics
}

func (t *telemetry) observe(ctx context.Context, e middleware.Event) {
	t.observeAs(ctx, &e, labels{method: words.Method(e.Method), route: t.route(ctx, e)})
}

func (t *telemetry) observeCall(ctx context.Context, e once.Event) {
	t.observeAs(ctx, words.OfCall(&e), labels{operation: e.Operation})
}

// observeAs measures and traces what happened. l has what names the request or the call.
func (t *telemetry) observeAs(ctx context.Context, e *middleware.Event, l labels) {
	l.outcome, l.class = string(e.Outcome), words.ErrorType(e)
	t.metrics.record(ctx, e, l)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		t.trace(ctx, span, e, l.class)
	}
}
