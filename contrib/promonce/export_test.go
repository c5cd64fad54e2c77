package promonce

import "github.com/prometheus/client_golang/prometheus"

// MaxSeries is maxSeries.
const MaxSeries = maxSeries

// CheckedExemplar is checkedExemplar.
func CheckedExemplar(l prometheus.Labels) prometheus.Labels { return checkedExemplar(l) }
