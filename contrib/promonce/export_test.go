package promonce

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/onceguard/onceguard/middleware"
)

// MaxSeries is maxSeries.
const MaxSeries = maxSeries

// ErrorType returns the label error_type of an Event.
func ErrorType(e middleware.Event) string { return errorType(&e) }

// CheckedExemplar is checkedExemplar.
func CheckedExemplar(l prometheus.Labels) prometheus.Labels { return checkedExemplar(l) }

// ErrorTypes returns every value of the label error_type.
func ErrorTypes() []string {
	all := []string{"", "record_unreadable", "timeout", "canceled", "network", "body_too_large", "pending", other}
	for _, c := range classes {
		all = append(all, c.word)
	}
	for _, p := range prefixes {
		all = append(all, p.word)
	}
	return all
}
