package promonce

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/onceguard/onceguard/contrib/internal/words"
)

// The names of labels.
const (
	outcomeName   = "outcome"
	methodName    = "method"
	routeName     = "route"
	errorTypeName = "error_type"
	phaseName     = "phase"
)

// labelNames are the names of a family's labels, in their order.
type labelNames []string

// labels are the values of all labels. Those that a family does not have are empty.
type labels struct{ outcome, method, route, errorType, phase string }

// values returns the values of the named labels in UTF-8, without which Prometheus panics.
func (l labels) values(names labelNames) []string {
	all := map[string]string{
		outcomeName: l.outcome, methodName: l.method, routeName: l.route, errorTypeName: l.errorType, phaseName: l.phase,
	}
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = strings.ToValidUTF8(all[name], "�")
	}
	return values
}

// maxSeries is how many combinations of labels a family has before new ones lose their route. Without WithRoute, a
// service would need hundreds of routes to have so many.
const maxSeries = 2000

// family is a metric with its labels. It keeps the series of each combination, so that a request allocates nothing: a
// lookup in the vector of client_golang takes one allocation and a lock. It may be used concurrently.
type family[M any] struct {
	vec    prometheus.Collector
	series *series[M]
}

type series[M any] struct {
	names labelNames
	with  func(values ...string) M

	known atomic.Pointer[map[labels]M] // never nil; the map does not change
	mu    sync.Mutex                   // held while known is replaced
}

func newFamily[M any](vec prometheus.Collector, names labelNames, with func(...string) M) family[M] {
	s := &series[M]{names: names, with: with}
	s.known.Store(&map[labels]M{})
	return family[M]{vec, s}
}

// of returns the series with the labels l.
func (f family[M]) of(l labels) M {
	if m, ok := (*f.series.known.Load())[l]; ok {
		return m
	}
	return f.series.add(l)
}

func (s *series[M]) add(l labels) M {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := *s.known.Load()
	if len(known) >= maxSeries && l.route != "" {
		l.route = words.Other
	}
	m, ok := known[l]
	if ok {
		return m
	}
	m = s.with(l.values(s.names)...)
	grown := maps.Clone(known)
	grown[l] = m
	s.known.Store(&grown)
	return m
}
