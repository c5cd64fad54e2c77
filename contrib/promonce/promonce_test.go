package promonce_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/contrib/promonce"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
)

// newLocker returns a Locker that is patient with a busy machine.
func newLocker(t testing.TB, client redis.UniversalClient, namespace string) *lock.Locker {
	t.Helper()
	l := lock.New(client, namespace, lock.WithOpTimeout(5*time.Second))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil && !errors.Is(err, lock.ErrGivenUp) {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

func newMetrics(t testing.TB, opts ...promonce.Option) (*promonce.Metrics, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	return promonce.New(reg, newLocker(t, redistest.Mini(t).Client(t), "payments-api"), opts...), reg
}

// everyOutcome are all that package middleware has.
var everyOutcome = []middleware.Outcome{
	middleware.Executed, middleware.CookiesDropped, middleware.NotStored, middleware.Freed, middleware.Unknown,
	middleware.Panicked, middleware.LeaseLost, middleware.Unprotected,
	middleware.Replayed, middleware.InFlight, middleware.Reused, middleware.NotReplayable, middleware.OutcomeUnknown,
	middleware.FingerprintChanged, middleware.Unreadable,
	middleware.MissingKey, middleware.InvalidKey, middleware.ExpiredKey, middleware.KeyFailed, middleware.NoUser,
	middleware.TooLarge, middleware.BodyUnreadable, middleware.StoreUnavailable,
}

// aPhase happened.
var aPhase = middleware.Phase{Start: time.Now(), Duration: 3 * time.Millisecond}

// everything is an Event of a request that came to every phase.
func everything(outcome middleware.Outcome) middleware.Event {
	return middleware.Event{
		Outcome: outcome, Key: "payments-api:{1f}secretdigits", Method: http.MethodPost, Pattern: "POST /payments", Status: 201,
		Size: 700, Age: time.Minute, Claim: aPhase, Wait: aPhase, Journal: aPhase, Handler: aPhase, Settle: aPhase,
	}
}

// metricsOf returns the metrics with the name, by their labels in the order of their names.
func metricsOf(t *testing.T, reg prometheus.Gatherer, name string) map[string]*dto.Metric {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*dto.Metric{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			found[strings.Join(labels, ",")] = m
		}
	}
	return found
}

func TestLint(t *testing.T) {
	t.Parallel()
	m, reg := newMetrics(t)
	for _, o := range everyOutcome {
		e := everything(o)
		e.Err = errors.New("any")
		m.Observe(t.Context(), e)
		e.Shadow = true
		m.Observe(t.Context(), e)
	}
	problems, err := testutil.GatherAndLint(reg)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if err != nil {
		t.Error(err)
	}
}

// A first request, a replay, a reused key, and a request without a key, on chi.
func TestRequests(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		reg := prometheus.NewPedanticRegistry()
		locker := newLocker(t, b.Client(t), "payments-api")
		metrics := promonce.New(reg, locker)
		r := chi.NewRouter()
		once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()), middleware.WithObserver(metrics.Observe))
		r.With(once).Post("/payments/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
		for _, try := range []struct{ key, body string }{
			{"k-of-ann", "a"}, {"k-of-ann", "a"}, {"k-of-ann", "a"}, {"k-of-ann", "b"}, {"", "a"},
		} {
			req := httptest.NewRequest(http.MethodPost, "/payments/7", strings.NewReader(try.body))
			if try.key != "" {
				req.Header.Set("Idempotency-Key", `"`+try.key+`"`)
			}
			r.ServeHTTP(httptest.NewRecorder(), req)
		}
		want := `# HELP onceguard_requests_total Requests whose method is protected, by what happened to them.
# TYPE onceguard_requests_total counter
onceguard_requests_total{error_type="",locker="payments-api",method="POST",outcome="executed",route="/payments/{id}"} 1
onceguard_requests_total{error_type="",locker="payments-api",method="POST",outcome="replayed",route="/payments/{id}"} 2
onceguard_requests_total{error_type="",locker="payments-api",method="POST",outcome="reused",route="/payments/{id}"} 1
onceguard_requests_total{error_type="",locker="payments-api",method="POST",outcome="unprotected",route="/payments/{id}"} 1
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "onceguard_requests_total"); err != nil {
			t.Error(err)
		}
		const of, on = "locker=payments-api,method=POST,outcome=", ",route=/payments/{id}"
		for name, counts := range map[string]map[string]uint64{
			"onceguard_handler_duration_seconds": {of + "executed" + on: 1, of + "unprotected" + on: 1},
			"onceguard_wait_duration_seconds":    {},
			"onceguard_record_size_bytes":        {of + "executed" + on: 1, of + "replayed" + on: 2},
			"onceguard_store_duration_seconds": {
				"error_type=,locker=payments-api,phase=claim": 4, "error_type=,locker=payments-api,phase=settle": 1,
			},
		} {
			found := metricsOf(t, reg, name)
			if len(found) != len(counts) {
				t.Errorf("%s: %d series, want %d: %v", name, len(found), len(counts), found)
			}
			for labels, want := range counts {
				if got := found[labels].GetHistogram().GetSampleCount(); got != want {
					t.Errorf("%s{%s}: %d, want %d", name, labels, got, want)
				}
			}
		}
		if sent := metricsOf(t, reg, "onceguard_commands_total")["locker=payments-api"].GetCounter().GetValue(); sent < 5 {
			t.Errorf("%v commands, want at least 5", sent)
		}
		scraped := httptest.NewRecorder()
		promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(scraped, httptest.NewRequest(http.MethodGet, "/", nil))
		stored := b.Keys(t)[0]
		for _, secret := range []string{"k-of-ann", "/payments/7", stored, stored[strings.IndexByte(stored, '}')+1:]} {
			if strings.Contains(scraped.Body.String(), secret) {
				t.Errorf("%q is exposed", secret)
			}
		}
	})
}

// What would have happened is not counted with what did, so that no alert looks at it.
//
// fault: step 1 of a roll-out needs the replays that would have differed, and no metric has them. Expected: a counter of
// their own, of requests in shadow alone.
func TestShadow(t *testing.T) {
	t.Parallel()
	for _, differs := range []bool{false, true} {
		m, reg := newMetrics(t)
		e := everything(middleware.Replayed)
		e.Shadow, e.Differs = true, differs
		m.Observe(t.Context(), e)
		m.Observe(t.Context(), e)
		for name, want := range map[string]int{
			"onceguard_shadow_requests_total": 1, "onceguard_store_duration_seconds": 3, "onceguard_requests_total": 0,
			"onceguard_handler_duration_seconds": 0, "onceguard_wait_duration_seconds": 0, "onceguard_record_size_bytes": 0,
			"onceguard_shadow_differs_total": map[bool]int{true: 1}[differs],
		} {
			found := metricsOf(t, reg, name)
			if len(found) != want {
				t.Errorf("%s: %v, want %d series", name, found, want)
			}
			for _, metric := range found {
				if c := metric.GetCounter(); c != nil && c.GetValue() != 2 {
					t.Errorf("%s: %v, want 2", name, c.GetValue())
				}
			}
		}
	}
}

// Leases and waiters are those of now.
func TestLockerStats(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	locker := newLocker(t, redistest.Mini(t).Client(t), "payments-api")
	promonce.New(reg, locker)
	lease, _, err := locker.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	gauge := func(name string) float64 {
		return metricsOf(t, reg, name)["locker=payments-api"].GetGauge().GetValue()
	}
	if got := gauge("onceguard_runs_active"); got != 1 {
		t.Errorf("%v runs, want 1", got)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := gauge("onceguard_runs_active"); got != 0 {
		t.Errorf("%v runs after the release, want 0", got)
	}
}

// A histogram has both kinds of buckets.
func TestNativeAndClassicBuckets(t *testing.T) {
	t.Parallel()
	m, reg := newMetrics(t)
	m.Observe(t.Context(), everything(middleware.Executed))
	for name, buckets := range map[string]int{
		"onceguard_handler_duration_seconds": 16, "onceguard_wait_duration_seconds": 16, "onceguard_record_size_bytes": 11,
		"onceguard_store_duration_seconds": 14,
	} {
		for labels, metric := range metricsOf(t, reg, name) {
			h := metric.GetHistogram()
			if len(h.GetBucket()) != buckets || len(h.GetPositiveSpan()) == 0 {
				t.Errorf("%s{%s}: %d classic buckets and %d native spans", name, labels, len(h.GetBucket()), len(h.GetPositiveSpan()))
			}
		}
	}
}

// The error is of the call that failed, and of no other.
func TestStoreErrors(t *testing.T) {
	t.Parallel()
	failed := errors.New("any")
	for name, test := range map[string]struct {
		event middleware.Event
		want  string // the phase that failed
	}{
		"claim":       {middleware.Event{Outcome: middleware.StoreUnavailable, Err: failed, Claim: aPhase}, "claim"},
		"wait":        {middleware.Event{Outcome: middleware.StoreUnavailable, Err: failed, Claim: aPhase, Wait: aPhase}, ""},
		"pending":     {middleware.Event{Outcome: middleware.NotStored, Err: failed, Pending: true, Claim: aPhase, Settle: aPhase}, "settle"},
		"lost":        {middleware.Event{Outcome: middleware.LeaseLost, Err: failed, Claim: aPhase, Settle: aPhase}, "settle"},
		"fail open":   {middleware.Event{Outcome: middleware.Unprotected, Err: failed, Claim: aPhase, Handler: aPhase}, "claim"},
		"the handler": {middleware.Event{Outcome: middleware.Unknown, Err: failed, Claim: aPhase, Handler: aPhase}, ""},
		"none":        {middleware.Event{Outcome: middleware.Executed, Claim: aPhase, Settle: aPhase}, ""},
	} {
		m, reg := newMetrics(t)
		m.Observe(t.Context(), test.event)
		var got []string
		for labels := range metricsOf(t, reg, "onceguard_store_duration_seconds") {
			if !strings.HasPrefix(labels, "error_type=,") {
				got = append(got, labels)
			}
		}
		var want []string
		if test.want != "" {
			want = []string{"error_type=_OTHER,locker=payments-api,phase=" + test.want}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestLabels(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		event middleware.Event
		want  string
	}{
		"ServeMux with method and host": {middleware.Event{Method: "POST", Pattern: "POST example.com/a/{id}"}, "method=POST,outcome=,route=/a/{id}"},
		"no pattern":                    {middleware.Event{Method: "PATCH"}, "method=PATCH,outcome=,route="},
		"a host alone":                  {middleware.Event{Method: "POST", Pattern: "nothing"}, "method=POST,outcome=,route="},
		"unknown method":                {middleware.Event{Method: "BREW"}, "method=_OTHER,outcome=,route="},
		"lower case":                    {middleware.Event{Method: "post"}, "method=_OTHER,outcome=,route="},
		"no UTF-8":                      {middleware.Event{Method: "POST", Pattern: "/\xff"}, "method=POST,outcome=,route=/�"},
	} {
		m, reg := newMetrics(t)
		m.Observe(t.Context(), test.event)
		if found := metricsOf(t, reg, "onceguard_requests_total"); found["error_type=,locker=payments-api,"+test.want] == nil {
			t.Errorf("%s: %v, want %s", name, found, test.want)
		}
	}
}

// A route function that returns paths fills the memory of nobody.
func TestRoutesAreBounded(t *testing.T) {
	t.Parallel()
	m, reg := newMetrics(t, promonce.WithRoute(func(_ context.Context, e middleware.Event) string { return e.Pattern }))
	for i := range promonce.MaxSeries + 500 {
		m.Observe(t.Context(), middleware.Event{Outcome: middleware.Executed, Method: "POST", Pattern: fmt.Sprint("/", i)})
	}
	found := metricsOf(t, reg, "onceguard_requests_total")
	others := found["error_type=,locker=payments-api,method=POST,outcome=executed,route=_OTHER"].GetCounter().GetValue()
	if len(found) != promonce.MaxSeries+1 || others != 500 {
		t.Errorf("%d series, and %v requests of others", len(found), others)
	}
}

func TestWithRoute(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	locker := newLocker(t, redistest.Mini(t).Client(t), "payments-api")
	metrics := promonce.New(reg, locker, promonce.WithRoute(func(ctx context.Context, _ middleware.Event) string {
		return chi.RouteContext(ctx).RoutePattern()
	}))
	once := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()), middleware.WithObserver(metrics.Observe))
	r := chi.NewRouter()
	r.Route("/payments", func(r chi.Router) {
		r.With(once).Post("/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	})
	r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/payments/7", nil))
	const want = "error_type=,locker=payments-api,method=POST,outcome=unprotected,route=/payments/{id}"
	if found := metricsOf(t, reg, "onceguard_requests_total"); found[want] == nil {
		t.Errorf("%v, want %s", found, want)
	}
}

// Several Lockers share a registry; the same one twice is a mistake that is told.
func TestRegistration(t *testing.T) {
	t.Parallel()
	client := redistest.Mini(t).Client(t)
	reg := prometheus.NewPedanticRegistry()
	payments := newLocker(t, client, "payments-api")
	m := promonce.New(reg, payments)
	promonce.New(reg, newLocker(t, client, "ledger"))
	promonce.New(reg, newLocker(t, client, "payments-api"), promonce.WithName("payments-api slow"))
	if found := metricsOf(t, reg, "onceguard_waiters"); len(found) != 3 || found["locker=payments-api slow"] == nil {
		t.Errorf("%v, want three lockers", found)
	}
	message := panicOf(func() { promonce.New(reg, payments) })
	if !strings.Contains(message, `the Locker "payments-api"`) || !strings.Contains(message, "WithName") {
		t.Errorf("panic %q", message)
	}
	if !reg.Unregister(m) {
		t.Error("Unregister does not find the metrics")
	}
	promonce.New(reg, payments)
}

func panicOf(f func()) (message string) {
	defer func() { message = fmt.Sprint(recover()) }()
	f()
	return ""
}

func TestPanics(t *testing.T) {
	t.Parallel()
	reg, locker := prometheus.NewRegistry(), newLocker(t, redistest.Mini(t).Client(t), "n")
	for want, f := range map[string]func(){
		"promonce.New: the registerer is nil":                        func() { promonce.New(nil, locker) },
		"promonce.New: the locker is nil":                            func() { promonce.New(reg, nil) },
		"promonce.New: option 1 is nil":                              func() { promonce.New(reg, locker, nil) },
		"promonce.WithName: the name is empty or not UTF-8":          func() { promonce.WithName("") },
		"promonce.WithName: the name is empty or not UTF-8" + "\x00": func() { promonce.WithName("\xff") },
		"promonce.WithRoute: f is nil":                               func() { promonce.WithRoute(nil) },
		"promonce.WithExemplar: f is nil":                            func() { promonce.WithExemplar(nil) },
	} {
		if got := panicOf(f); got != strings.TrimSuffix(want, "\x00") {
			t.Errorf("panic %q, want %q", got, want)
		}
	}
	if found := metricsOf(t, reg, "onceguard_waiters"); len(found) != 0 {
		t.Errorf("%v is registered", found)
	}
}

func TestExemplars(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("a", 32)
	m, reg := newMetrics(t, promonce.WithExemplar(func(context.Context, middleware.Event) prometheus.Labels {
		return prometheus.Labels{"trace_id": id}
	}))
	m.Observe(t.Context(), everything(middleware.Executed))
	counter := metricsOf(t, reg, "onceguard_requests_total")["error_type=,locker=payments-api,method=POST,outcome=executed,route=/payments"]
	if got := counter.GetCounter().GetExemplar().GetLabel()[0].GetValue(); got != id {
		t.Errorf("the counter's exemplar is %q", got)
	}
	for _, name := range []string{
		"onceguard_handler_duration_seconds", "onceguard_wait_duration_seconds", "onceguard_record_size_bytes",
		"onceguard_store_duration_seconds",
	} {
		for labels, metric := range metricsOf(t, reg, name) {
			h := metric.GetHistogram()
			found := len(h.GetExemplars()) == 1
			for _, b := range h.GetBucket() {
				found = found || b.GetExemplar() != nil
			}
			if !found {
				t.Errorf("%s{%s} has no exemplar", name, labels)
			}
		}
	}
}

// What client_golang would panic on is left out, and counted all the same.
func TestWrongExemplars(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]prometheus.Labels{
		"nil": nil, "empty": {}, "too long": {"trace_id": strings.Repeat("a", 121)}, "no name": {"": "a"}, "a digit": {"1a": "a"},
		"a dot": {"trace.id": "a"}, "reserved": {"__name__": "a"}, "no UTF-8": {"trace_id": "\xff"},
	} {
		m, reg := newMetrics(t, promonce.WithExemplar(func(context.Context, middleware.Event) prometheus.Labels { return l }))
		m.Observe(t.Context(), everything(middleware.Executed))
		for labels, metric := range metricsOf(t, reg, "onceguard_requests_total") {
			if metric.GetCounter().GetValue() != 1 || metric.GetCounter().GetExemplar() != nil {
				t.Errorf("%s: %s: %v", name, labels, metric)
			}
		}
	}
	if promonce.CheckedExemplar(prometheus.Labels{"trace_id": strings.Repeat("ä", 120)}) == nil {
		t.Error("128 characters are too many")
	}
}

// FuzzExemplar: what passes the check makes no panic.
func FuzzExemplar(f *testing.F) {
	f.Add("trace_id", "0af7651916cd43dd8448eb211c80319c")
	f.Add("", "")
	f.Add("__a", "\xff")
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "any"})
	f.Fuzz(func(_ *testing.T, name, value string) {
		if l := promonce.CheckedExemplar(prometheus.Labels{name: value}); l != nil {
			counter.(prometheus.ExemplarAdder).AddWithExemplar(1, l)
		}
	})
}

// Nothing is lost when many requests make the same series, and Prometheus scrapes meanwhile.
func TestConcurrently(t *testing.T) {
	t.Parallel()
	m, reg := newMetrics(t)
	var done sync.WaitGroup
	for range 8 {
		done.Go(func() {
			for i := range 100 {
				e := everything(everyOutcome[i%len(everyOutcome)])
				m.Observe(context.Background(), e)
			}
		})
		done.Go(func() {
			if _, err := reg.Gather(); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	var total float64
	for _, metric := range metricsOf(t, reg, "onceguard_requests_total") {
		total += metric.GetCounter().GetValue()
	}
	if total != 800 {
		t.Errorf("%v requests, want 800", total)
	}
}

// A request costs no memory.
func TestObserveDoesNotAllocate(t *testing.T) {
	m, _ := newMetrics(t)
	first, replay := everything(middleware.Executed), middleware.Event{Outcome: middleware.Replayed, Method: "POST", Claim: aPhase, Size: 700}
	ctx := context.Background()
	if allocs := testing.AllocsPerRun(1000, func() {
		m.Observe(ctx, first)
		m.Observe(ctx, replay)
	}); allocs > 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
}

func BenchmarkObserve(b *testing.B) {
	m, _ := newMetrics(b)
	first := everything(middleware.Executed)
	first.Wait, first.Journal = middleware.Phase{}, middleware.Phase{}
	for name, e := range map[string]middleware.Event{
		"first":  first,
		"replay": {Outcome: middleware.Replayed, Method: "POST", Pattern: "POST /payments", Claim: aPhase, Size: 700},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					m.Observe(context.Background(), e)
				}
			})
		})
	}
}
