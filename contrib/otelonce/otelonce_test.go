package otelonce_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/extra/redisotel/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/onceguard/onceguard/contrib/otelonce"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/once"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector is an SDK whose traces are sampled if sampled is true.
type collector struct {
	t       *testing.T
	sampled bool
	tracers *sdktrace.TracerProvider
	spans   *tracetest.InMemoryExporter
	reader  *sdkmetric.ManualReader
	options []otelonce.Option // with its providers
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{t: t, sampled: true, spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	c.tracers = sdktrace.NewTracerProvider(sdktrace.WithSyncer(c.spans), sdktrace.WithSampler(sdktrace.ParentBased(c)))
	c.options = []otelonce.Option{
		otelonce.WithTracerProvider(c.tracers),
		otelonce.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(c.reader))),
	}
	return c
}

// ShouldSample makes the collector a sampler of traces that begin.
func (c *collector) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if c.sampled {
		return sdktrace.AlwaysSample().ShouldSample(p)
	}
	return sdktrace.NeverSample().ShouldSample(p)
}

// Description is called by the SDK.
func (*collector) Description() string { return "switch" }

// within calls f in a span, as a tracing middleware outside does. It returns that span and the spans that f has begun.
func (c *collector) within(f func(context.Context)) (server tracetest.SpanStub, others tracetest.SpanStubs) {
	c.spans.Reset()
	ctx, span := c.tracers.Tracer("server").Start(c.t.Context(), "server")
	f(ctx)
	span.End()
	if all := c.spans.GetSpans(); len(all) > 0 {
		server, others = all[len(all)-1], all[:len(all)-1]
	}
	return server, others
}

// told returns attributes in the form a=b, sorted.
func told(all []attribute.KeyValue) string {
	set := attribute.NewSet(all...)
	return set.Encoded(attribute.DefaultEncoder())
}

// points returns each data point as its instrument, the attributes, and the sum or, of a histogram, the count. It leaves out
// what is 0.
func (c *collector) points() (all []string) {
	c.t.Helper()
	var collected metricdata.ResourceMetrics
	if err := c.reader.Collect(context.Background(), &collected); err != nil {
		c.t.Fatal(err)
	}
	for _, scope := range collected.ScopeMetrics {
		for _, m := range scope.Metrics {
			add := func(set attribute.Set, n any) {
				if n != int64(0) {
					name := strings.TrimPrefix(m.Name, "onceguard.") + " " + m.Unit
					all = append(all, fmt.Sprintf("%s %s: %v", name, set.Encoded(attribute.DefaultEncoder()), n))
				}
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Value)
				}
				grows := m.Name != "onceguard.runs.active" && m.Name != "onceguard.waiters"
				if data.IsMonotonic != grows {
					c.t.Errorf("%s grows only: %t", m.Name, !grows)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Count)
				}
			case metricdata.Histogram[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Count)
				}
			}
			if m.Description == "" {
				c.t.Errorf("%s has no description", m.Name)
			}
		}
	}
	slices.Sort(all)
	return all
}

func (c *collector) wantPoints(want ...string) {
	c.t.Helper()
	if got := c.points(); !slices.Equal(got, want) {
		c.t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const executed = "http.request.method=POST,http.route=/payments/{id},onceguard.outcome=executed: "

var (
	start  = time.Now().Add(-time.Minute)
	errAny = errors.New("any")
)

// aPhase happened.
func aPhase(after time.Duration) middleware.Phase {
	return middleware.Phase{Start: start.Add(after), Duration: time.Millisecond}
}

// What an Event becomes: attributes and spans, and the points of metrics. Only the phase that failed has the error. What would
// have happened in shadow is not counted with what did.
func TestObserve(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		event      middleware.Event
		attributes string
		spans      string
		points     []string
	}{
		"everything": {
			event: middleware.Event{
				Outcome: middleware.Executed, Key: "n:{1}2", Method: http.MethodPost, Pattern: "POST shop.example/payments/{id}",
				Size: 700, Age: time.Second, Pending: true, Err: errAny, Claim: aPhase(0), Wait: aPhase(1), Journal: aPhase(2),
				Handler: aPhase(3), Settle: aPhase(4),
			},
			attributes: "onceguard.key=n:{1}2,onceguard.outcome=executed,onceguard.pending=true,onceguard.record.size=700," +
				"onceguard.replay.age=1",
			spans: "claim wait journal settle:_OTHER",
			points: []string{
				"handler.duration s error.type=_OTHER," + executed + "1",
				"record.size By error.type=_OTHER," + executed + "1",
				"requests {request} error.type=_OTHER," + executed + "1",
				"store.duration s error.type=_OTHER,onceguard.phase=settle: 1",
				"store.duration s onceguard.phase=claim: 1",
				"store.duration s onceguard.phase=journal: 1",
				"wait.duration s error.type=_OTHER," + executed + "1",
			},
		},
		"in shadow": {
			event: middleware.Event{
				Outcome: middleware.Replayed, Method: "BREW", Shadow: true, Differs: true, Size: 1, Handler: aPhase(1), Claim: aPhase(0),
			},
			attributes: "onceguard.outcome=replayed,onceguard.record.size=1,onceguard.shadow=true,onceguard.shadow.differs=true",
			spans:      "claim",
			points: []string{
				"shadow.requests {request} http.request.method=_OTHER,onceguard.outcome=replayed: 1",
				"store.duration s onceguard.phase=claim: 1",
			},
		},
		"a mismatch": {
			event:      middleware.Event{Outcome: middleware.Reused, FirstRunning: true},
			attributes: "onceguard.first.running=true,onceguard.outcome=reused",
			points:     []string{"requests {request} http.request.method=_OTHER,onceguard.outcome=reused: 1"},
		},
		"a mismatch with what has ended": {
			event:      middleware.Event{Outcome: middleware.Reused, FirstEnded: time.Now().Add(time.Hour)}, // another's clock
			attributes: "onceguard.first.age=0,onceguard.first.running=false,onceguard.outcome=reused",
			points:     []string{"requests {request} http.request.method=_OTHER,onceguard.outcome=reused: 1"},
		},
	} {
		c := newCollector(t)
		observe := otelonce.Observer(c.options...)
		server, others := c.within(func(ctx context.Context) { observe(ctx, test.event) })
		var spans []string
		for _, span := range others {
			name := strings.TrimPrefix(span.Name, "onceguard.")
			if failed := span.Status.Code == codes.Error; failed {
				name += strings.TrimPrefix(told(span.Attributes), "error.type=")
				name = strings.Replace(name, "_", ":_", 1)
			}
			if spans = append(spans, name); span.Parent.SpanID() != server.SpanContext.SpanID() || !span.EndTime.After(span.StartTime) {
				t.Errorf("%s: %s is no child of the server span, or has no time", name, span.Name)
			}
		}
		if got := told(server.Attributes); got != test.attributes || strings.Join(spans, " ") != test.spans {
			t.Errorf("%s: attributes %s and spans %q, want %s and %q", name, got, spans, test.attributes, test.spans)
		}
		failed := test.event.Err != nil
		if server.Status.Code != codes.Unset || failed != (len(server.Events) == 1) || failed &&
			told(server.Events[0].Attributes) != "exception.message=any,exception.type=_OTHER" {
			t.Errorf("%s: the server span has the status %v and the events %v", name, server.Status, server.Events)
		}
		c.wantPoints(test.points...)
	}
}

// A first request and its replay, which has a link to the first one; calls of once.Do; and the counts of the Locker. What is not
// sampled makes no spans, and stores no trace that nobody could look at. The route is the whole one of chi.
func TestWired(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	locker := newLocker(t)
	route := otelonce.WithRoute(func(ctx context.Context, _ middleware.Event) string {
		return chi.RouteContext(ctx).RoutePattern()
	})
	r := chi.NewRouter()
	protect := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()), otelonce.New(locker, append(c.options, route)...))
	r.With(protect).Post("/payments/{id}", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		if active := c.points(); !slices.Contains(active, "runs.active {run} onceguard.namespace=payments-1: 1") {
			t.Errorf("while one runs: %q", active)
		}
	})
	var first trace.SpanContext
	for i, sampled := range []bool{true, true, false, true} {
		c.sampled = sampled
		server, others := c.within(func(ctx context.Context) {
			req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/payments/7", nil)
			req.Header.Set("Idempotency-Key", fmt.Sprint("k", i/2)) // two requests, two of whom the first is not sampled
			r.ServeHTTP(httptest.NewRecorder(), req)
		})
		links := 0
		if i == 1 {
			links = 1
		}
		if len(server.Links) != links || (len(others) > 0) != sampled {
			t.Fatalf("request %d: links %v, spans %v", i, server.Links, others)
		}
		if links == 1 && (server.Links[0].SpanContext.SpanID() != first.SpanID() || server.Links[0].SpanContext.TraceID() != first.TraceID()) {
			t.Errorf("the link is %v, want %v", server.Links[0], first)
		}
		first = server.SpanContext
	}
	guard := once.New(locker, otelonce.Calls(c.options...))
	_, others := c.within(func(ctx context.Context) {
		_, _, _ = once.Do(ctx, guard, once.Key{Operation: "charge", Scope: "ann", ID: "1"},
			func(context.Context) (int, error) { return 1, nil })
	})
	if len(others) != 2 {
		t.Errorf("the spans of a call are %v", others)
	}
	points := slices.DeleteFunc(c.points(), func(p string) bool { return !strings.HasPrefix(p, "requests") })
	if want := []string{
		"requests {request} " + executed + "2",
		"requests {request} http.request.method=POST,http.route=/payments/{id},onceguard.outcome=replayed: 2",
		"requests {request} onceguard.operation=charge,onceguard.outcome=executed: 1",
	}; !slices.Equal(points, want) {
		t.Errorf("%q, want %q", points, want)
	}
}

func newLocker(t *testing.T) *lock.Locker {
	t.Helper()
	l := lock.New(redistest.Mini(t).Client(t), "payments-1", lock.WithOpTimeout(30*time.Second))
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
	return l
}

// The last export, after Locker.Close, has the lease that was lost shortly before, and no run is active in it.
func TestLastExport(t *testing.T) {
	t.Parallel()
	c, backend := newCollector(t), redistest.Mini(t)
	locker := lock.New(backend.Client(t), "payments-1", lock.WithOpTimeout(30*time.Second))
	otelonce.New(locker, c.options...)
	lease, err := locker.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	backend.FlushAll(t)
	other, err := locker.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = lease.Release(t.Context()), other.Release(t.Context())
	if err := locker.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.wantPoints("leases.lost {lease} onceguard.namespace=payments-1: 1")
}

// fault: the lock sends commands of nobody's request -> with Untraced they begin no traces
func TestUntraced(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	for want, opts := range map[int][]lock.Option{0: {otelonce.Untraced()}, 1: nil} {
		client := redistest.Mini(t).Client(t)
		if err := redisotel.InstrumentTracing(client, redisotel.WithTracerProvider(c.tracers), redisotel.WithDialFilter(true)); err != nil {
			t.Fatal(err)
		}
		renewed := lock.New(client, "n", append(opts, lock.WithTTL(3*time.Second), lock.WithOpTimeout(30*time.Second))...)
		_, _ = c.within(func(ctx context.Context) {
			lease, err := renewed.Acquire(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			poll := time.NewTicker(time.Millisecond)
			defer poll.Stop()
			for renewed.Stats().Renewals == 0 && lease.Context().Err() == nil {
				<-poll.C
			}
			_ = lease.Release(ctx)
		})
		traces := map[trace.TraceID]bool{}
		for _, span := range c.spans.GetSpans() {
			traces[span.SpanContext.TraceID()] = true
		}
		if got := len(traces) > 1; got != (want > 0) {
			t.Errorf("%d traces beside the request's, want %d", len(traces)-1, want)
		}
		_ = renewed.Close(t.Context())
	}
}

func TestPanics(t *testing.T) {
	t.Parallel()
	l := newLocker(t)
	for want, f := range map[string]func(){
		"otelonce.New: the locker is nil":                  func() { otelonce.New(nil) },
		"otelonce.New: an option is nil":                   func() { otelonce.New(l, nil) },
		"otelonce.Calls: an option is nil":                 func() { otelonce.Calls(nil) },
		"otelonce.WithTracerProvider: the provider is nil": func() { otelonce.WithTracerProvider(nil) },
		"otelonce.WithMeterProvider: the provider is nil":  func() { otelonce.WithMeterProvider(nil) },
		"otelonce.WithRoute: f is nil":                     func() { otelonce.WithRoute(nil) },
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("panic %v, want %q", got, want)
				}
			}()
			f()
		}()
	}
}
