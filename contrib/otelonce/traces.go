package otelonce

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceguard/onceguard/contrib/internal/words"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// untraced is the parent of commands that belong to no request. No such trace exists.
var untraced = trace.NewSpanContext(trace.SpanContextConfig{
	TraceID: trace.TraceID([]byte("onceguard: batch")),
	SpanID:  trace.SpanID([]byte("no trace")),
})

// Untraced keeps commands that belong to no single request from becoming traces: batches of several requests' commands,
// and commands that the lock sends in the background. It is for a Redis client with tracing hooks. It is
// [lock.WithBaseContext] with a context whose span is not sampled. A sampler that asks the parent, such as the SDK's
// default or any sdktrace.ParentBased, then samples nothing; sdktrace.AlwaysSample alone does.
func Untraced() lock.Option {
	return lock.WithBaseContext(trace.ContextWithSpanContext(context.Background(), untraced))
}

// traceparent returns what a run stores about its trace: nothing if the trace is not sampled.
func traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier.Get("traceparent")
}

// firstRun returns the span of the run whose response was replayed.
func firstRun(traceparent string) trace.SpanContext {
	carrier := propagation.MapCarrier{"traceparent": traceparent}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// trace describes the request in its server span, and makes the child spans.
func (t *telemetry) trace(ctx context.Context, server trace.Span, e *middleware.Event, class string) {
	server.SetAttributes(outcomeKey.String(string(e.Outcome)))
	ended := !e.FirstEnded.IsZero()
	for _, a := range []struct {
		is        bool
		attribute attribute.KeyValue
	}{
		{e.Key != "", attribute.String("onceguard.key", e.Key)},
		{e.Size > 0, attribute.Int("onceguard.record.size", e.Size)},
		{e.Age > 0, attribute.Float64("onceguard.replay.age", e.Age.Seconds())},
		{e.FirstRunning || ended, attribute.Bool("onceguard.first.running", e.FirstRunning)},
		{ended, attribute.Float64("onceguard.first.age", max(0, time.Since(e.FirstEnded).Seconds()))},
		{e.Pending, attribute.Bool("onceguard.pending", true)},
		{e.Shadow, attribute.Bool("onceguard.shadow", true)},
		{e.Shadow && e.Differs, attribute.Bool("onceguard.shadow.differs", true)},
	} {
		if a.is {
			server.SetAttributes(a.attribute)
		}
	}
	if e.Traceparent != "" {
		server.AddLink(trace.Link{SpanContext: firstRun(e.Traceparent)})
	}
	if e.Err != nil {
		server.AddEvent("exception", trace.WithAttributes( // RecordError's type would be *errors.joinError
			semconv.ExceptionType(class), semconv.ExceptionMessage(e.Err.Error())))
	}
	failed := words.FailedPhase(e)
	for _, p := range words.PhasesOf(e) {
		t.child(ctx, p, e.Err, class, p.Name == failed)
	}
}

// child makes the span of a phase that is over.
func (t *telemetry) child(ctx context.Context, p words.Phase, err error, class string, failed bool) {
	if p.Start.IsZero() {
		return
	}
	_, span := t.tracer.Start(ctx, "onceguard."+p.Name, trace.WithTimestamp(p.Start))
	if failed {
		span.SetAttributes(semconv.ErrorTypeKey.String(class))
		span.SetStatus(codes.Error, err.Error())
	}
	span.End(trace.WithTimestamp(p.Start.Add(p.Duration)))
}
