package promonce

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/onceguard/onceguard/contrib/internal/words"
	"github.com/onceguard/onceguard/middleware"
)

// requests are the metrics of requests.
type requests struct {
	total, shadow, differs     *prometheus.CounterVec
	handler, wait, size, store *prometheus.HistogramVec
}

var (
	byRoute = []string{"outcome", "method", "route"}
	byError = append(byRoute, "error_type")
)

// newRequests returns metrics that are registered with reg.
func newRequests(reg prometheus.Registerer, of prometheus.Labels) *requests {
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, ConstLabels: of, Buckets: buckets,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, labels)
		reg.MustRegister(h)
		return h
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: of}, labels)
		reg.MustRegister(c)
		return c
	}
	return &requests{
		total: counter("onceguard_requests_total",
			"Requests whose method is protected, by what happened to them.", byError...),
		shadow: counter("onceguard_shadow_requests_total",
			"Requests with WithShadow, by what would have happened to them.", byError...),
		differs: counter("onceguard_shadow_differs_total",
			"Requests with WithShadow that were answered otherwise than the replay would have been.", byRoute...),
		handler: histogram("onceguard_handler_duration_seconds",
			"Duration of the handler, protected or not.", words.HandlerBuckets, byRoute...),
		wait: histogram("onceguard_wait_duration_seconds",
			"How long duplicates waited for the response of the first request.", words.HandlerBuckets, byRoute...),
		size: histogram("onceguard_record_size_bytes",
			"Size of responses as they are stored or were replayed: compressed, encrypted.", words.SizeBuckets, byRoute...),
		store: histogram("onceguard_store_duration_seconds",
			"Duration of the calls to Redis and to the journal.", words.StoreBuckets, "phase", "error_type"),
	}
}

// observe counts the request.
func (r *requests) observe(e *middleware.Event, method, route string) {
	errorType := words.ErrorType(e)
	// Without UTF-8, Prometheus panics.
	ofRoute := []string{string(e.Outcome), method, strings.ToValidUTF8(route, "\uFFFD")}
	ofError := append(ofRoute, errorType)
	if e.Shadow { // must not raise an alert
		r.shadow.WithLabelValues(ofError...).Inc()
		if e.Differs {
			r.differs.WithLabelValues(ofRoute...).Inc()
		}
	} else {
		r.total.WithLabelValues(ofError...).Inc()
		observeIf(!e.Handler.Start.IsZero(), r.handler, ofRoute, e.Handler.Duration.Seconds())
		observeIf(!e.Wait.Start.IsZero(), r.wait, ofRoute, e.Wait.Duration.Seconds())
		observeIf(e.Size > 0, r.size, ofRoute, float64(e.Size))
	}
	failed := words.FailedPhase(e)
	for _, p := range words.PhasesOf(e) {
		byPhase := []string{p.Name, ""}
		if p.Name == failed {
			byPhase[1] = errorType
		}
		inStore := p.Name != words.Wait && !p.Start.IsZero()
		observeIf(inStore, r.store, byPhase, p.Duration.Seconds())
	}
}

// observeIf adds v to the histogram with these labels if there is such a value.
func observeIf(is bool, h *prometheus.HistogramVec, labels []string, v float64) {
	if is {
		h.WithLabelValues(labels...).Observe(v)
	}
}
