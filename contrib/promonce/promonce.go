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
	all      *prometheus.Registry
	route    func(context.Context, middleware.Event) string
}

// Option changes a default of [New].
type Option func(*options)

type options struct {
	name  string
	route func(context.Context, middleware.Event) string
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

// New returns the metrics of l, registered with reg. Call it once for each Locker, and pass [Metrics.Observe] to every
// [middleware.Idempotency] on l. The metrics stay registered after [lock.Locker.Close]; reg.Unregister removes them.
//
// New panics if reg, l or an option is nil, or if reg already has the metrics of a Locker with the same name.
func New(reg prometheus.Registerer, l *lock.Locker, opts ...Option) *Metrics {
	if reg == nil || l == nil {
		panic("promonce.New: the registerer or the locker is nil")
	}
	o := options{name: words.Namespace(l), route: words.Route}
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("promonce.New: option %d is nil", i+1))
		}
		opt(&o)
	}
	of := prometheus.Labels{"locker": o.name}
	all := prometheus.NewRegistry()
	m := &Metrics{requests: newRequests(all, of), all: all, route: o.route}
	registerStats(all, l, of)
	if err := reg.Register(m); err != nil {
		panic(fmt.Sprintf("promonce.New: the metrics of the Locker %q cannot be registered; "+
			"call New once for each Locker, and give Lockers with one namespace a WithName each: %v", o.name, err))
	}
	return m
}

// Observe counts one request. Pass it to [middleware.WithObserver]; other observers may be set beside it.
func (m *Metrics) Observe(ctx context.Context, e middleware.Event) {
	m.requests.observe(&e, words.Method(e.Method), m.route(ctx, e))
}

// ObserveCall counts one call of once.Do as a request. Its route is the Operation of the key, and it has no method. Pass
// it to [once.WithObserver]. The function of [WithRoute] is not called.
func (m *Metrics) ObserveCall(_ context.Context, e once.Event) {
	m.requests.observe(words.OfCall(&e), "", e.Operation)
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(out chan<- *prometheus.Desc) { m.all.Describe(out) }

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(out chan<- prometheus.Metric) { m.all.Collect(out) }
