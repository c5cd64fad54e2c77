package promonce

import (
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
)

// increment adds 1 to c. exemplar is checked, and may be nil.
func increment(c prometheus.Counter, exemplar prometheus.Labels) {
	if exemplar == nil {
		c.Inc()
		return
	}
	c.(prometheus.ExemplarAdder).AddWithExemplar(1, exemplar)
}

// observeIf adds v to the histogram with these labels if there is such a value. exemplar is checked, and may be nil.
func observeIf(is bool, h *prometheus.HistogramVec, labels []string, v float64, exemplar prometheus.Labels) {
	if !is {
		return
	}
	o := h.WithLabelValues(labels...)
	if exemplar == nil {
		o.Observe(v)
		return
	}
	o.(prometheus.ExemplarObserver).ObserveWithExemplar(v, exemplar)
}

// checkedExemplar returns l, or nil if l has no labels, or labels on which client_golang would panic. The names must
// have the syntax of OpenMetrics, which is stricter than client_golang's.
func checkedExemplar(l prometheus.Labels) prometheus.Labels {
	runes := 0
	for name, value := range l {
		runes += utf8.RuneCountInString(name) + utf8.RuneCountInString(value)
		legal := model.LegacyValidation.IsValidLabelName(name) && !strings.HasPrefix(name, model.ReservedLabelPrefix)
		if !legal || !utf8.ValidString(value) {
			return nil
		}
	}
	if len(l) == 0 || runes > prometheus.ExemplarMaxRunes {
		return nil
	}
	return l
}
