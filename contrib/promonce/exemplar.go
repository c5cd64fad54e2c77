package promonce

import (
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// increment adds 1 to c. exemplar is checked, and may be nil.
func increment(c prometheus.Counter, exemplar prometheus.Labels) {
	if adder, ok := c.(prometheus.ExemplarAdder); ok && exemplar != nil {
		adder.AddWithExemplar(1, exemplar)
		return
	}
	c.Inc()
}

// record adds v to o. exemplar is checked, and may be nil.
func record(o prometheus.Observer, v float64, exemplar prometheus.Labels) {
	if observer, ok := o.(prometheus.ExemplarObserver); ok && exemplar != nil {
		observer.ObserveWithExemplar(v, exemplar)
		return
	}
	o.Observe(v)
}

// checkedExemplar returns l, or nil if l has no labels, or labels on which client_golang would panic. The names must
// have the syntax of OpenMetrics, which is stricter than client_golang's.
func checkedExemplar(l prometheus.Labels) prometheus.Labels {
	runes := 0
	for name, value := range l {
		runes += utf8.RuneCountInString(name) + utf8.RuneCountInString(value)
		if !isLabelName(name) || !utf8.ValidString(value) {
			return nil
		}
	}
	if len(l) == 0 || runes > prometheus.ExemplarMaxRunes {
		return nil
	}
	return l
}

// isLabelName reports whether name is a label-name of OpenMetrics that is not reserved.
func isLabelName(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', i > 0 && '0' <= c && c <= '9':
		default:
			return false
		}
	}
	return name != "" && !strings.HasPrefix(name, "__")
}
