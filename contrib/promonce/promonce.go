package promonce

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/onceguard/onceguard/contrib/internal/words"
	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware"
	"github.com/onceguard/onceguard/once"
)

// Metrics are the metrics of one Locker, and of the middlewares and Guards on it. It is a [prometheus.Collector]. [New] makes it.
// Its methods may be called concurrently.
type Metrics struct {
	requests *requests
	all      []prometheus.Collector
	route    func(context.Context, middleware.Event) string
	exemplar func(context.Context, middleware.Event) prometheus.Labels // nil without WithExemplar
}

// Option changes a default of [New].
type Option func(*options)

type options struct {
	name     string
	route    func(context.Context, middleware.Event) string
	exemplar func(context.Context, middleware.Event) prometheus.Labels
}

// WithName sets the label locker. The default is the namespace of the Locker. Two Lockers with one namespace in one
// process need two names. WithName panics if name is empty or is not UTF-8.
func WithName(name string) Option {
	if name == "" || !utf8.ValidString(name) {
		panic("promonce.WithName: the name is empty or not UTF-8")
	}
	return func(o *options) { o.name = name }
}

// WithRoute sets the function that returns the label route, empty if it is not known. The default is the path of
// [middleware.Event].Pattern. f must return a pattern and never a path, because each value makes new time series. It
// gets the context of the request, and is called concurrently. WithRoute panics if f is nil.
//
// In older versions of chi a sub-router puts only its own part into Pattern. The whole route is
//
//	promonce.WithRoute(func(ctx context.Context, _ middleware.Event) string {
//		return chi.RouteContext(ctx).RoutePattern()
//	})
func WithRoute(f func(context.Context, middleware.Event) string) Option {
	if f == nil {
		panic("promonce.WithRoute: f is nil")
	}
	return func(o *options) { o.route = f }
}

// WithExemplar adds the labels that f returns, such as the id of the trace, as an exemplar to the counters of requests
// and the histograms. By default there are none. f is called once for each request, concurrently, with the request's
// context. It returns nil for a request without an exemplar, such as one whose trace is not sampled. WithExemplar
// panics if f is nil.
//
// Metrics counts the request without its exemplar in these cases: its names and values together have more than
// [prometheus.ExemplarMaxRunes] characters; a name has a character that is no letter, digit or underscore, or begins
// with a digit or two underscores; a value is not UTF-8. Exemplars are exposed in the OpenMetrics format only: see
// promhttp.HandlerOpts.EnableOpenMetrics. They are public: do not put a key or a user into them.
func WithExemplar(f func(context.Context, middleware.Event) prometheus.Labels) Option {
	if f == nil {
		panic("promonce.WithExemplar: f is nil")
	}
	return func(o *options) { o.exemplar = f }
}

// New returns the metrics of l, registered with reg. Call it once for each Locker, and pass [Metrics.Observe] to every
// [middleware.Idempotency] on l. The metrics stay registered after [lock.Locker.Close]; reg.Unregister removes them.
//
// New panics if reg, l or an option is nil, or if reg already has the metrics of a Locker with the same name.
func New(reg prometheus.Registerer, l *lock.Locker, opts ...Option) *Metrics {
	switch {
	case reg == nil:
		panic("promonce.New: the registerer is nil")
	case l == nil:
		panic("promonce.New: the locker is nil")
	}
	o := options{name: words.Namespace(l), route: words.Route}
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("promonce.New: option %d is nil", i+1))
		}
		opt(&o)
	}
	of := prometheus.Labels{"locker": o.name}
	m := &Metrics{requests: newRequests(of), route: o.route, exemplar: o.exemplar}
	m.all = append(m.requests.collectors(), newLockerStats(l, of))
	if err := reg.Register(m); err != nil {
		panic(fmt.Sprintf("promonce.New: the metrics of the Locker %q cannot be registered; "+
			"call New once for each Locker, and give Lockers with one namespace a WithName each: %v", o.name, err))
	}
	return m
}

// Observe counts one request. Pass it to [middleware.WithObserver]; other observers may be set beside it.
func (m *Metrics) Observe(ctx context.Context, e middleware.Event) {
	m.requests.observe(&e, words.Method(e.Method), m.route(ctx, e), m.exemplarOf(ctx, e))
}

// ObserveCall counts one call of once.Do as a request. Its route is the Operation of the key, and it has no method. Pass
// it to [once.WithObserver]. The function of [WithExemplar] gets a [middleware.Event] with what the two kinds have in
// common; that of [WithRoute] is not called.
func (m *Metrics) ObserveCall(ctx context.Context, e once.Event) {
	event := words.OfCall(&e)
	m.requests.observe(event, "", e.Operation, m.exemplarOf(ctx, *event))
}

func (m *Metrics) exemplarOf(ctx context.Context, e middleware.Event) prometheus.Labels {
	if m.exemplar == nil {
		return nil
	}
	return checkedExemplar(m.exemplar(ctx, e))
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(out)
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(out)
	}
}
