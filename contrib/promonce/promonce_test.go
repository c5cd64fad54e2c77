package promonce_test

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
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/onceguard/onceguard/contrib/promonce"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/keyfunc"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/once"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func newLocker(t testing.TB, namespace string) *lock.Locker {
	t.Helper()
	l := lock.New(redistest.Mini(t).Client(t), namespace, lock.WithOpTimeout(30*time.Second))
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
	return l
}

func newMetrics(t testing.TB, opts ...promonce.Option) (*promonce.Metrics, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	return promonce.New(reg, newLocker(t, "payments-api"), opts...), reg
}

// samples returns each series as its name without onceguard_, the values of its labels in the order of their names, without
// that of the locker, and the counter, or the count of the histogram. It leaves out what is 0.
func samples(t *testing.T, reg prometheus.Gatherer) (all []string) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				if l.GetName() != "locker" {
					values = append(values, l.GetValue())
				}
			}
			n := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if h := m.GetHistogram(); h != nil {
				n = float64(h.GetSampleCount())
				if len(h.GetBucket()) < 10 || len(h.GetPositiveSpan()) == 0 {
					t.Errorf("%s has not both kinds of buckets", f.GetName())
				}
			}
			if n != 0 {
				name := strings.TrimPrefix(f.GetName(), "onceguard_")
				all = append(all, fmt.Sprintf("%s %s %v", name, strings.Join(values, ","), n))
			}
		}
	}
	return all
}

// requests returns the samples of onceguard_requests_total.
func requests(t *testing.T, reg prometheus.Gatherer) []string {
	t.Helper()
	return slices.DeleteFunc(samples(t, reg), func(s string) bool {
		return !strings.HasPrefix(s, "requests_total")
	})
}

// aPhase happened.
var aPhase = middleware.Phase{Start: time.Now(), Duration: 3 * time.Millisecond}

// everything is an Event of a request that came to every phase.
func everything() middleware.Event {
	return middleware.Event{
		Outcome: middleware.Executed, Method: http.MethodPost, Pattern: "POST /payments", Status: 201, Size: 700,
		Claim: aPhase, Wait: aPhase, Journal: aPhase, Handler: aPhase, Settle: aPhase,
	}
}

var errAny = errors.New("any")

// What an Event becomes. Only the phase that failed has the error. What would have happened in shadow is not counted with
// what did, so that no alert looks at it.
func TestObserve(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*middleware.Event)
		want   []string
	}{
		"everything": {func(*middleware.Event) {}, []string{
			"handler_duration_seconds POST,executed,/payments 1",
			"record_size_bytes POST,executed,/payments 1",
			"requests_total ,POST,executed,/payments 1",
			"store_duration_seconds ,claim 1",
			"store_duration_seconds ,journal 1",
			"store_duration_seconds ,settle 1",
			"wait_duration_seconds POST,executed,/payments 1",
		}},
		"in shadow": {func(e *middleware.Event) { e.Shadow, e.Journal = true, middleware.Phase{} }, []string{
			"shadow_requests_total ,POST,executed,/payments 1",
			"store_duration_seconds ,claim 1",
			"store_duration_seconds ,settle 1",
		}},
		"in shadow, with another answer": {func(e *middleware.Event) {
			*e = middleware.Event{Outcome: middleware.Replayed, Shadow: true, Differs: true}
		}, []string{
			"shadow_differs_total _OTHER,replayed, 1",
			"shadow_requests_total ,_OTHER,replayed, 1",
		}},
		"a claim failed": {func(e *middleware.Event) {
			*e = middleware.Event{Outcome: middleware.StoreUnavailable, Err: errAny, Claim: aPhase}
		}, []string{
			"requests_total _OTHER,_OTHER,store-unavailable, 1",
			"store_duration_seconds _OTHER,claim 1",
		}},
		"a wait failed": {func(e *middleware.Event) {
			*e = middleware.Event{Outcome: middleware.StoreUnavailable, Err: errAny, Claim: aPhase, Wait: aPhase}
		}, []string{
			"requests_total _OTHER,_OTHER,store-unavailable, 1",
			"store_duration_seconds ,claim 1",
			"wait_duration_seconds _OTHER,store-unavailable, 1",
		}},
		"pending, and no UTF-8": {func(e *middleware.Event) {
			*e = middleware.Event{Pending: true, Err: errAny, Pattern: "/\xff", Claim: aPhase, Settle: aPhase}
		}, []string{
			"requests_total _OTHER,_OTHER,,/\uFFFD 1",
			"store_duration_seconds ,claim 1",
			"store_duration_seconds _OTHER,settle 1",
		}},
	} {
		m, reg := newMetrics(t)
		e := everything()
		test.change(&e)
		m.Observe(t.Context(), e)
		if got := samples(t, reg); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if problems, err := testutil.GatherAndLint(reg); len(problems) > 0 || err != nil {
			t.Errorf("%s: %v, %v", name, problems, err)
		}
	}
}

// Requests by their route, and calls of once.Do by their Operation. The metrics of the Locker are those of now.
func TestWired(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	locker := newLocker(t, "payments-api")
	metrics := promonce.New(reg, locker, promonce.WithRoute(func(ctx context.Context, _ middleware.Event) string {
		return chi.RouteContext(ctx).RoutePattern()
	}))
	r := chi.NewRouter()
	protect := middleware.Idempotency(locker, keyfunc.Standard(keyfunc.Anonymous()), middleware.WithObserver(metrics.Observe))
	r.With(protect).Post("/payments/{id}", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		if got := samples(t, reg); !slices.Contains(got, "runs_active  1") {
			t.Errorf("while one runs: %q", got)
		}
	})
	for range 2 {
		req := httptest.NewRequest(http.MethodPost, "/payments/7", nil)
		req.Header.Set("Idempotency-Key", "k")
		r.ServeHTTP(httptest.NewRecorder(), req)
	}
	guard := once.New(locker, once.WithObserver(metrics.ObserveCall))
	for _, id := range []string{"1", ""} {
		_, _, _ = once.Do(t.Context(), guard, once.Key{Operation: "/Pay", Scope: "ann", ID: id},
			func(context.Context) (int, error) { return 1, nil })
	}
	if got, want := requests(t, reg), []string{
		"requests_total ,,executed,/Pay 1",
		"requests_total ,POST,executed,/payments/{id} 1",
		"requests_total ,POST,replayed,/payments/{id} 1",
		"requests_total key_invalid,,invalid-key,/Pay 1",
	}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := samples(t, reg); slices.Contains(got, "runs_active  1") {
		t.Errorf("at the end: %q", got)
	}
}

func panicOf(f func()) (message string) {
	defer func() { message = fmt.Sprint(recover()) }()
	f()
	return ""
}

// Several Lockers share a registry; the same one twice is a mistake that is told.
func TestRegistration(t *testing.T) {
	t.Parallel()
	payments := newLocker(t, "payments-api")
	m, reg := newMetrics(t)
	promonce.New(reg, newLocker(t, "ledger"))
	promonce.New(reg, payments, promonce.WithName("payments-api slow"))
	for want, f := range map[string]func(){
		`promonce.New: the metrics of the Locker "payments-api" cannot be registered`: func() { promonce.New(reg, payments) },

		"promonce.New: the registerer or":                   func() { promonce.New(nil, payments) },
		"promonce.New: the registerer or the locker":        func() { promonce.New(reg, nil) },
		"promonce.New: option 1 is nil":                     func() { promonce.New(reg, payments, nil) },
		"promonce.WithName: the name is empty or not UTF-8": func() { promonce.WithName("\xff") },
		"promonce.WithRoute: f is nil":                      func() { promonce.WithRoute(nil) },
	} {
		if got := panicOf(f); !strings.HasPrefix(got, want) {
			t.Errorf("panic %q, want %q", got, want)
		}
	}
	if !reg.Unregister(m) {
		t.Error("Unregister does not find the metrics")
	}
	promonce.New(reg, payments)
}
