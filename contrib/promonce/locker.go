package promonce

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/onceguard/onceguard/lock"
)

// counts are the metrics that [lock.Locker.Stats] has.
var counts = []struct {
	name, help string
	kind       prometheus.ValueType
	of         func(*lock.Stats) float64
}{
	{"runs_active", "Leases that are valid now: the requests that run, and what else uses the locker.",
		prometheus.GaugeValue, func(s *lock.Stats) float64 { return float64(s.Leases) }},
	{"waiters", "Requests that wait for the response of another one now.",
		prometheus.GaugeValue, func(s *lock.Stats) float64 { return float64(s.Waiters) }},
	{"subscriptions", "Keys that waiters are subscribed to now.",
		prometheus.GaugeValue, func(s *lock.Stats) float64 { return float64(s.Subscriptions) }},
	{"commands_queued", "Commands that wait to be sent to Redis now.",
		prometheus.GaugeValue, func(s *lock.Stats) float64 { return float64(s.Queued) }},
	{"commands_in_flight", "Commands that were sent to Redis and have no reply now.",
		prometheus.GaugeValue, func(s *lock.Stats) float64 { return float64(s.InFlight) }},
	{"batches_total", "Batches of commands that were sent to Redis.",
		prometheus.CounterValue, func(s *lock.Stats) float64 { return float64(s.Batches) }},
	{"commands_total", "Commands that were sent to Redis.",
		prometheus.CounterValue, func(s *lock.Stats) float64 { return float64(s.Commands) }},
	{"retries_total", "Tries after the first one of an operation on Redis.",
		prometheus.CounterValue, func(s *lock.Stats) float64 { return float64(s.Retries) }},
	{"operations_given_up_total", "Operations that ended without an answer from Redis.",
		prometheus.CounterValue, func(s *lock.Stats) float64 { return float64(s.GivenUp) }},
	{"renewals_total", "Renewals of leases that Redis confirmed.",
		prometheus.CounterValue, func(s *lock.Stats) float64 { return float64(s.Renewals) }},
	{"leases_lost_total", "Leases that were lost while their holder relied on them: two runs may have taken effect.",
		prometheus.CounterValue, func(s *lock.Stats) float64 { return float64(s.Lost) }},
	{"settles_pending", "Values that could not be stored yet and are retried in the background now.",
		prometheus.GaugeValue, func(s *lock.Stats) float64 { return float64(s.Pending) }},
	{"settles_pending_bytes", "Total size of the values that could not be stored yet.",
		prometheus.GaugeValue, func(s *lock.Stats) float64 { return float64(s.PendingBytes) }},
	{"settles_late_total", "Values that were stored in the background, or no longer had to be.",
		prometheus.CounterValue, func(s *lock.Stats) float64 { return float64(s.SettledLate) }},
	{"settles_given_up_total", "Values that were never stored.",
		prometheus.CounterValue, func(s *lock.Stats) float64 { return float64(s.SettlesGivenUp) }},
	{"releases_pending", "Claims that no run needs and that are released in the background now.",
		prometheus.GaugeValue, func(s *lock.Stats) float64 { return float64(s.Releases) }},
	{"releases_given_up_total", "Claims that no run needs and that may stay: their keys may be abandoned.",
		prometheus.CounterValue, func(s *lock.Stats) float64 { return float64(s.ReleasesGivenUp) }},
}

// lockerStats are the metrics of a Locker.
type lockerStats struct {
	locker *lock.Locker
	descs  []*prometheus.Desc // one for each of counts
}

func newLockerStats(l *lock.Locker, of prometheus.Labels) lockerStats {
	s := lockerStats{locker: l}
	for _, c := range counts {
		s.descs = append(s.descs, prometheus.NewDesc("onceguard_"+c.name, c.help, nil, of))
	}
	return s
}

func (s *lockerStats) describe(out chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		out <- d
	}
}

func (s *lockerStats) collect(out chan<- prometheus.Metric) {
	stats := s.locker.Stats()
	for i, c := range counts {
		out <- prometheus.MustNewConstMetric(s.descs[i], c.kind, c.of(&stats))
	}
}
