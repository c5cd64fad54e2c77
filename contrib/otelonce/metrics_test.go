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
	"go.opentelemetry.io/otel/attribute"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/onceguard/onceguard/contrib/otelonce"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// points returns the data points of an instrument as "attributes: number", where the number is the sum or, of a
// histogram, the count.
func points(t *testing.T, m metricdata.Metrics) (all []string) {
	t.Helper()
	add := func(set attribute.Set, n any) {
		all = append(all, fmt.Sprintf("%s: %v", set.Encoded(attribute.DefaultEncoder()), n))
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, p.Value)
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, p.Count)
			if p.Sum <= 0 || p.Sum > 60 {
				t.Errorf("%s: %v seconds", m.Name, p.Sum)
			}
		}
	case metricdata.Histogram[int64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, p.Count)
			if p.Sum < 50 || p.Sum > 1000 {
				t.Errorf("%s: %v bytes", m.Name, p.Sum)
			}
		}
	default:
		t.Errorf("%s: a %T", m.Name, data)
	}
	slices.Sort(all)
	return all
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := newSite(t, created, settings{middleware: []middleware.Option{middleware.WithAtMostOnce()}})
	s.send("k")
	s.send("k")
	s.send(`"k`)
	s.send("")
	const (
		post     = "http.request.method=POST,http.route=/payments/{id},onceguard.outcome="
		executed = post + "executed: 1"
		replayed = post + "replayed: 1"
		lockers  = "onceguard.namespace=payments-1: "
	)
	metrics := s.metrics()
	for name, want := range map[string]struct {
		unit   string
		points []string
	}{
		"onceguard.requests": {"{request}", []string{
			"error.type=key_invalid," + post + "invalid-key: 1", executed, replayed, post + "unprotected: 1",
		}},
		"onceguard.store.duration": {"s", []string{
			"onceguard.phase=claim: 2", "onceguard.phase=settle: 1",
		}},
		"onceguard.handler.duration": {"s", []string{executed, post + "unprotected: 1"}},
		"onceguard.record.size":      {"By", []string{executed, replayed}},
		"onceguard.runs.active":      {"{run}", []string{lockers + "0"}},
		"onceguard.waiters":          {"{request}", []string{lockers + "0"}},
		"onceguard.leases.lost":      {"{lease}", []string{lockers + "0"}},
	} {
		m, ok := metrics[name]
		if !ok {
			t.Errorf("no %s", name)
			continue
		}
		slices.Sort(want.points)
		if got := points(t, m); m.Unit != want.unit || !slices.Equal(got, want.points) {
			t.Errorf("%s: %s %q, want %s %q", name, m.Unit, got, want.unit, want.points)
		}
		if m.Description == "" {
			t.Errorf("%s has no description", name)
		}
		delete(metrics, name)
	}
	if len(metrics) > 0 {
		t.Errorf("more metrics: %v", metrics)
	}
}

// Counters only grow; what is active may fall.
func TestKinds(t *testing.T) {
	t.Parallel()
	s := newSite(t, created, settings{})
	s.send("k")
	metrics := s.metrics()
	for name, grows := range map[string]bool{
		"onceguard.requests": true, "onceguard.leases.lost": true, "onceguard.runs.active": false, "onceguard.waiters": false,
	} {
		if sum, ok := metrics[name].Data.(metricdata.Sum[int64]); !ok || sum.IsMonotonic != grows {
			t.Errorf("%s: %T, grows only: %t", name, metrics[name].Data, !grows)
		}
	}
	h := metrics["onceguard.store.duration"].Data.(metricdata.Histogram[float64])
	if bounds := h.DataPoints[0].Bounds; bounds[0] != 0.0001 || bounds[len(bounds)-1] != 2.5 {
		t.Errorf("buckets %v", bounds)
	}
}

func TestActive(t *testing.T) {
	t.Parallel()
	entered, open := make(chan struct{}), make(chan struct{})
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-open
		created(w, r)
	}, settings{middleware: []middleware.Option{middleware.WithWait(1 << 40)}})
	done := make(chan struct{}, 2)
	send := func() { s.send("k"); done <- struct{}{} }
	go send()
	<-entered
	go send()
	await(t, func(st lock.Stats) bool { return st.Waiters == 1 }, s.locker)
	metrics := s.metrics()
	for _, name := range []string{"onceguard.runs.active", "onceguard.waiters"} {
		if got := points(t, metrics[name]); !slices.Equal(got, []string{"onceguard.namespace=payments-1: 1"}) {
			t.Errorf("%s: %q, want 1", name, got)
		}
	}
	close(open)
	<-done
	<-done
	metrics = s.metrics()
	if got := points(t, metrics["onceguard.wait.duration"]); len(got) != 1 || !strings.HasSuffix(got[0], "onceguard.outcome=replayed: 1") {
		t.Errorf("waits %q, want one", got)
	}
	if got := points(t, metrics["onceguard.runs.active"]); !slices.Equal(got, []string{"onceguard.namespace=payments-1: 0"}) {
		t.Errorf("active: %q, want none", got)
	}
}

// The last export, after Locker.Close, has the lease that was lost shortly before, and no run is active in it.
func TestLastExport(t *testing.T) {
	t.Parallel()
	s := newSite(t, created, settings{})
	lease, err := s.locker.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	other, err := s.locker.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Fatalf("Release: %v, want ErrLost", err)
	}
	if err := other.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.locker.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	metrics := s.metrics()
	for name, want := range map[string]string{"onceguard.leases.lost": "1", "onceguard.runs.active": "0"} {
		if m, ok := metrics[name]; !ok {
			t.Errorf("no %s", name)
		} else if got := points(t, m); !slices.Equal(got, []string{"onceguard.namespace=payments-1: " + want}) {
			t.Errorf("%s: %q, want %s", name, got, want)
		}
	}
}

// A client can choose neither the name of a series nor how many there are.
func TestLabelsAreFew(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ method, pattern, want string }{
		{"POST", "/payments/{id}", "http.request.method=POST,http.route=/payments/{id}"},
		{"POST", "POST /payments/{id}", "http.request.method=POST,http.route=/payments/{id}"},
		{"POST", "POST  shop.example/payments/{$}", "http.request.method=POST,http.route=/payments/{$}"},
		{"POST", "", "http.request.method=POST"},
		{"post", "", "http.request.method=_OTHER"},
		{"BREW", "", "http.request.method=_OTHER"},
	} {
		s := newSite(t, created, settings{})
		once := middleware.Idempotency(s.locker, keyfunc.Anonymous(), middleware.WithMethods(test.method), s.telemetry)
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Method, r.Pattern = test.method, test.pattern
		once(http.HandlerFunc(created)).ServeHTTP(httptest.NewRecorder(), r)
		want := []string{test.want + ",onceguard.outcome=executed: 1"}
		if got := points(t, s.metrics()["onceguard.requests"]); !slices.Equal(got, want) {
			t.Errorf("%+v: %q, want %q", test, got, want)
		}
	}
}

func TestWithRoute(t *testing.T) {
	t.Parallel()
	whole := otelonce.WithRoute(func(ctx context.Context, _ middleware.Event) string { return chi.RouteContext(ctx).RoutePattern() })
	s := newSite(t, created, settings{telemetry: []otelonce.Option{whole}})
	outer := chi.NewRouter()
	outer.Mount("/shop", s.handler)
	s.handler = http.StripPrefix("", outer)
	r := httptest.NewRequest(http.MethodPost, "/shop/payments/7", nil)
	r.Header.Set("Idempotency-Key", "k")
	s.handler.ServeHTTP(httptest.NewRecorder(), r)
	want := "http.request.method=POST,http.route=/shop/payments/{id},onceguard.outcome=executed: 1"
	if got := points(t, s.metrics()["onceguard.requests"]); !slices.Equal(got, []string{want}) {
		t.Errorf("%q, want %q", got, want)
	}
}

// With an SDK that does nothing, and outside of a recorded span, a request costs no allocation.
func TestAllocations(t *testing.T) {
	l := lock.New(redistest.Mini(t).Client(t), "payments-1", lock.WithOpTimeout(20*time.Second))
	defer func() { _ = l.Close(t.Context()) }()
	observe := otelonce.Observer(otelonce.WithMeterProvider(noopmetric.NewMeterProvider()),
		otelonce.WithTracerProvider(nooptrace.NewTracerProvider()))
	e := middleware.Event{Outcome: middleware.Executed, Method: "POST", Pattern: "POST /payments/{id}", Size: 100}
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { observe(ctx, e) }); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// A WithRoute that returns paths does not fill the memory.
func TestKeptAttributesAreBounded(t *testing.T) {
	t.Parallel()
	l := lock.New(redistest.Mini(t).Client(t), "payments-1", lock.WithOpTimeout(20*time.Second))
	defer func() { _ = l.Close(t.Context()) }()
	kept := otelonce.KeptAfter(3000)
	if kept > 2000 {
		t.Errorf("%d combinations are kept, want 2,000 at most", kept)
	}
}

func TestPanics(t *testing.T) {
	t.Parallel()
	l := lock.New(redistest.Mini(t).Client(t), "payments-1", lock.WithOpTimeout(20*time.Second))
	defer func() { _ = l.Close(t.Context()) }()
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
