package promonce

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/onceguard/onceguard/contrib/internal/words"
	"github.com/onceguard/onceguard/middleware"
)

// requests are the metrics of requests.
type requests struct {
	total, shadow, differs     *prometheus.CounterVec
	handler, wait, size, store *prometheus.HistogramVec
	routes                     routes
}

// The classic buckets. A run may take 60 s by default, and a record a little more than 1 MiB.
var (
	storeBuckets   = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	handlerBuckets = []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 30, 60}
	sizeBuckets    = []float64{128, 256, 512, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
)

func newRequests(of prometheus.Labels) *requests {
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, ConstLabels: of, Buckets: buckets,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: of}, labels)
	}
	return &requests{
		total: counter("onceguard_requests_total",
			"Requests whose method is protected, by what happened to them.",
			"outcome", "method", "route", "error_type"),
		shadow: counter("onceguard_shadow_requests_total",
			"Requests with WithShadow, by what would have happened to them.",
			"outcome", "method", "route", "error_type"),
		differs: counter("onceguard_shadow_differs_total",
			"Requests with WithShadow that were answered otherwise than the replay would have been.",
			"outcome", "method", "route"),
		handler: histogram("onceguard_handler_duration_seconds",
			"Duration of the handler, protected or not.",
			handlerBuckets, "outcome", "method", "route"),
		wait: histogram("onceguard_wait_duration_seconds",
			"How long duplicates waited for the response of the first request.",
			handlerBuckets, "outcome", "method", "route"),
		size: histogram("onceguard_record_size_bytes",
			"Size of responses as they are stored or were replayed: compressed, encrypted.",
			sizeBuckets, "outcome", "method", "route"),
		store: histogram("onceguard_store_duration_seconds",
			"Duration of the calls to Redis and to the journal.",
			storeBuckets, "phase", "error_type"),
		routes: routes{known: map[string]bool{}},
	}
}

func (r *requests) collectors() []prometheus.Collector {
	return []prometheus.Collector{r.total, r.shadow, r.differs, r.handler, r.wait, r.size, r.store}
}

// observe counts the request. exemplar may be nil.
func (r *requests) observe(e *middleware.Event, method, route string, exemplar prometheus.Labels) {
	errorType := words.ErrorType(e)
	byRoute := []string{string(e.Outcome), method, r.routes.bounded(route)}
	byError := append(byRoute, errorType)
	if e.Shadow { // must not raise an alert
		increment(r.shadow.WithLabelValues(byError...), exemplar)
		if e.Differs {
			increment(r.differs.WithLabelValues(byRoute...), exemplar)
		}
	} else {
		increment(r.total.WithLabelValues(byError...), exemplar)
		observeIf(!e.Handler.Start.IsZero(), r.handler, byRoute, e.Handler.Duration.Seconds(), exemplar)
		observeIf(!e.Wait.Start.IsZero(), r.wait, byRoute, e.Wait.Duration.Seconds(), exemplar)
		observeIf(e.Size > 0, r.size, byRoute, float64(e.Size), exemplar)
	}
	failed := words.FailedPhase(e)
	for _, p := range words.PhasesOf(e) {
		byPhase := []string{p.Name, ""}
		if p.Name == failed {
			byPhase[1] = errorType
		}
		inStore := p.Name != words.Wait && !p.Start.IsZero()
		observeIf(inStore, r.store, byPhase, p.Duration.Seconds(), exemplar)
	}
}

// maxRoutes is how many routes have series of their own. Without WithRoute a service hardly has so many.
const maxRoutes = 500

// routes are the values of the label route.
type routes struct {
	mu    sync.Mutex
	known map[string]bool
}

// bounded returns the route in UTF-8, without which Prometheus panics, or _OTHER if there are maxRoutes others.
func (r *routes) bounded(route string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	route = strings.ToValidUTF8(route, "\uFFFD")
	if len(r.known) >= maxRoutes && !r.known[route] {
		return words.Other
	}
	r.known[route] = true
	return route
}
