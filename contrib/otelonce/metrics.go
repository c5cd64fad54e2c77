package otelonce

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"

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
	ofRequests, ofStore  attributes
}

// labels are the values of a measurement's attributes; "" is no attribute.
type labels struct {
	outcome                  string
	method, route, operation string // of a request or, operation alone, of a call of once.Do
	phase                    string // of a call to the store
	class                    string // error.type
}

// The advice for buckets. The handler's go beyond those of http.server.request.duration: a run may take 60 s.
var (
	storeBuckets   = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	handlerBuckets = []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 30, 60}
	sizeBuckets    = []float64{128, 256, 512, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
)

func newMetrics(meter metric.Meter) *metrics {
	seconds := func(name, description string, buckets []float64) metric.Float64Histogram {
		return made(meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(buckets...)))
	}
	return &metrics{
		requests: made(meter.Int64Counter("onceguard.requests", metric.WithUnit("{request}"),
			metric.WithDescription("Requests whose method is protected, by what happened to them."))),
		shadow: made(meter.Int64Counter("onceguard.shadow.requests", metric.WithUnit("{request}"),
			metric.WithDescription("Requests with WithShadow, by what would have happened to them."))),
		store: seconds("onceguard.store.duration", "Duration of the calls to Redis, and to the journal.", storeBuckets),
		wait: seconds("onceguard.wait.duration", "How long duplicates waited for the response of the first request.",
			handlerBuckets),
		handler: seconds("onceguard.handler.duration", "Duration of the handler.", handlerBuckets),
		size: made(meter.Int64Histogram("onceguard.record.size", metric.WithUnit("By"),
			metric.WithDescription("Size of the response as it is stored or was replayed: compressed, encrypted."),
			metric.WithExplicitBucketBoundaries(sizeBuckets...))),
		ofRequests: attributes{make: requestAttributes}, ofStore: attributes{make: storeAttributes},
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
	if of := m.ofRequests.of(l); e.Shadow { // must not raise an alert
		m.shadow.Add(ctx, 1, of.add...)
	} else {
		m.recordRequest(ctx, e, of)
	}
	m.recordStore(ctx, e, l.class)
}

func (m *metrics) recordRequest(ctx context.Context, e *middleware.Event, of *measured) {
	m.requests.Add(ctx, 1, of.add...)
	if !e.Handler.Start.IsZero() {
		m.handler.Record(ctx, e.Handler.Duration.Seconds(), of.record...)
	}
	if !e.Wait.Start.IsZero() {
		m.wait.Record(ctx, e.Wait.Duration.Seconds(), of.record...)
	}
	if e.Size > 0 {
		m.size.Record(ctx, int64(e.Size), of.record...)
	}
}

// recordStore measures the phases that were spent in Redis and the journal.
func (m *metrics) recordStore(ctx context.Context, e *middleware.Event, class string) {
	failed := words.FailedPhase(e)
	for _, p := range words.PhasesOf(e) {
		if p.Start.IsZero() || p.Name == words.Wait {
			continue
		}
		of := labels{phase: p.Name}
		if p.Name == failed {
			of.class = class
		}
		m.store.Record(ctx, p.Duration.Seconds(), m.ofStore.of(of).record...)
	}
}

func requestAttributes(l labels) []attribute.KeyValue {
	all := []attribute.KeyValue{outcomeKey.String(l.outcome)}
	if l.operation != "" {
		all = append(all, operationKey.String(l.operation))
	}
	if l.method != "" {
		all = append(all, semconv.HTTPRequestMethodKey.String(l.method))
	}
	if l.route != "" {
		all = append(all, semconv.HTTPRoute(l.route))
	}
	return withClass(all, l.class)
}

func storeAttributes(l labels) []attribute.KeyValue {
	return withClass([]attribute.KeyValue{phaseKey.String(l.phase)}, l.class)
}

func withClass(all []attribute.KeyValue, class string) []attribute.KeyValue {
	if class != "" {
		all = append(all, semconv.ErrorTypeKey.String(class))
	}
	return all
}

// attributes keeps the attributes of each combination of labels, so that a request allocates none. It may be used
// concurrently.
type attributes struct {
	make func(labels) []attribute.KeyValue

	known atomic.Pointer[map[labels]*measured] // the map does not change; nil before the first request
	mu    sync.Mutex                           // held while known is replaced
}

// maxKnown is how many combinations are kept, as many as the SDK keeps series by default. There are more only if
// WithRoute returns paths.
const maxKnown = 2000

// measured has the attributes of a measurement.
type measured struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func (a *attributes) of(l labels) *measured {
	if known := a.known.Load(); known != nil {
		if m, ok := (*known)[l]; ok {
			return m
		}
	}
	set := metric.WithAttributeSet(attribute.NewSet(a.make(l)...))
	m := &measured{[]metric.AddOption{set}, []metric.RecordOption{set}}
	a.keep(l, m)
	return m
}

func (a *attributes) keep(l labels, m *measured) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := map[labels]*measured{}
	if before := a.known.Load(); before != nil {
		if len(*before) >= maxKnown {
			return
		}
		maps.Copy(known, *before)
	}
	known[l] = m
	a.known.Store(&known)
}
