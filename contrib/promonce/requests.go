package promonce

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/onceguard/onceguard/contrib/internal/words"
	"github.com/onceguard/onceguard/middleware"
)

// requests are the metrics of requests.
type requests struct {
	total   family[prometheus.Counter]
	shadow  family[prometheus.Counter]
	differs family[prometheus.Counter]
	handler family[prometheus.Observer]
	wait    family[prometheus.Observer]
	size    family[prometheus.Observer]
	store   family[prometheus.Observer]
}

// The classic buckets. A run may take 60 s by default, and a record a little more than 1 MiB.
var (
	storeBuckets   = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	handlerBuckets = []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 30, 60}
	sizeBuckets    = []float64{128, 256, 512, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
)

func newRequests(of prometheus.Labels) requests {
	histogram := func(name, help string, buckets []float64, names labelNames) family[prometheus.Observer] {
		vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, ConstLabels: of, Buckets: buckets,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, names)
		return newFamily(vec, names, vec.WithLabelValues)
	}
	counter := func(name, help string, names labelNames) family[prometheus.Counter] {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: of}, names)
		return newFamily(vec, names, vec.WithLabelValues)
	}
	byError := labelNames{outcomeName, methodName, routeName, errorTypeName}
	byRoute := labelNames{outcomeName, methodName, routeName}
	byPhase := labelNames{phaseName, errorTypeName}
	return requests{
		total: counter("onceguard_requests_total",
			"Requests whose method is protected, by what happened to them.", byError),
		shadow: counter("onceguard_shadow_requests_total",
			"Requests with WithShadow, by what would have happened to them.", byError),
		differs: counter("onceguard_shadow_differs_total",
			"Requests with WithShadow that were answered otherwise than the replay would have been.", byRoute),
		handler: histogram("onceguard_handler_duration_seconds",
			"Duration of the handler, protected or not.", handlerBuckets, byRoute),
		wait: histogram("onceguard_wait_duration_seconds",
			"How long duplicates waited for the response of the first request.", handlerBuckets, byRoute),
		size: histogram("onceguard_record_size_bytes",
			"Size of responses as they are stored or were replayed: compressed, encrypted.", sizeBuckets, byRoute),
		store: histogram("onceguard_store_duration_seconds",
			"Duration of the calls to Redis and to the journal.", storeBuckets, byPhase),
	}
}

func (r *requests) collectors() [7]prometheus.Collector {
	return [...]prometheus.Collector{r.total.vec, r.shadow.vec, r.differs.vec, r.handler.vec, r.wait.vec, r.size.vec, r.store.vec}
}

// observe counts the request. exemplar may be nil.
func (r *requests) observe(e *middleware.Event, l labels, exemplar prometheus.Labels) {
	if e.Shadow { // must not raise an alert
		increment(r.shadow.of(l), exemplar)
		if e.Differs {
			byRoute := l
			byRoute.errorType = ""
			increment(r.differs.of(byRoute), exemplar)
		}
	} else {
		r.observeRequest(e, l, exemplar)
	}
	r.observeStore(e, l.errorType, exemplar)
}

func (r *requests) observeRequest(e *middleware.Event, l labels, exemplar prometheus.Labels) {
	increment(r.total.of(l), exemplar)
	byRoute := l
	byRoute.errorType = ""
	if !e.Handler.Start.IsZero() {
		record(r.handler.of(byRoute), e.Handler.Duration.Seconds(), exemplar)
	}
	if !e.Wait.Start.IsZero() {
		record(r.wait.of(byRoute), e.Wait.Duration.Seconds(), exemplar)
	}
	if e.Size > 0 {
		record(r.size.of(byRoute), float64(e.Size), exemplar)
	}
}

// observeStore measures the calls to Redis and to the journal.
func (r *requests) observeStore(e *middleware.Event, errorType string, exemplar prometheus.Labels) {
	failed := words.FailedPhase(e)
	for _, p := range words.PhasesOf(e) {
		if p.Start.IsZero() || p.Name == words.Wait {
			continue
		}
		byPhase := labels{phase: p.Name}
		if p.Name == failed {
			byPhase.errorType = errorType
		}
		record(r.store.of(byPhase), p.Duration.Seconds(), exemplar)
	}
}
