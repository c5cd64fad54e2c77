package promonce

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/onceguard/onceguard/lock"
)

// counts are the metrics that [lock.Locker.Stats] has.
var counts = []struct {
	name, help string
	of         func(*lock.Stats) float64
}{
	{"runs_active", "Leases that are valid now: the requests that run, and what else uses the locker.",
		func(s *lock.Stats) float64 { return float64(s.Leases) }},
	{"waiters", "Requests that wait for the response of another one now.",
		func(s *lock.Stats) float64 { return float64(s.Waiters) }},
	{"subscriptions", "Keys that waiters are subscribed to now.",
		func(s *lock.Stats) float64 { return float64(s.Subscriptions) }},
	{"commands_queued", "Commands that wait to be sent to Redis now.",
		func(s *lock.Stats) float64 { return float64(s.Queued) }},
	{"commands_in_flight", "Commands that were sent to Redis and have no reply now.",
		func(s *lock.Stats) float64 { return float64(s.InFlight) }},
	{"batches_total", "Batches of commands that were sent to Redis.",
		func(s *lock.Stats) float64 { return float64(s.Batches) }},
	{"commands_total", "Commands that were sent to Redis.",
		func(s *lock.Stats) float64 { return float64(s.Commands) }},
	{"retries_total", "Tries after the first one of an operation on Redis.",
		func(s *lock.Stats) float64 { return float64(s.Retries) }},
	{"operations_given_up_total", "Operations that ended without an answer from Redis.",
		func(s *lock.Stats) float64 { return float64(s.GivenUp) }},
	{"renewals_total", "Renewals of leases that Redis confirmed.",
		func(s *lock.Stats) float64 { return float64(s.Renewals) }},
	{"leases_lost_total", "Leases that were lost while their holder relied on them: two runs may have taken effect.",
		func(s *lock.Stats) float64 { return float64(s.Lost) }},
	{"settles_pending", "Values that could not be stored yet and are retried in the background now.",
		func(s *lock.Stats) float64 { return float64(s.Pending) }},
	{"settles_pending_bytes", "Total size of the values that could not be stored yet.",
		func(s *lock.Stats) float64 { return float64(s.PendingBytes) }},
	{"settles_late_total", "Values that were stored in the background, or no longer had to be.",
		func(s *lock.Stats) float64 { return float64(s.SettledLate) }},
	{"settles_given_up_total", "Values that were never stored.",
		func(s *lock.Stats) float64 { return float64(s.SettlesGivenUp) }},
	{"releases_pending", "Claims that no run needs and that are released in the background now.",
		func(s *lock.Stats) float64 { return float64(s.Releases) }},
	{"releases_given_up_total", "Claims that no run needs and that may stay: their keys may be abandoned.",
		func(s *lock.Stats) float64 { return float64(s.ReleasesGivenUp) }},
}

// lockerStats are the metrics of a Locker.
type lockerStats struct {
	locker *lock.Locker
	descs  []*prometheus.Desc // one for each of counts
}

func newLockerStats(l *lock.Locker, of prometheus.Labels) *lockerStats {
	s := &lockerStats{locker: l}
	for _, c := range counts {
		s.descs = append(s.descs, prometheus.NewDesc("onceguard_"+c.name, c.help, nil, of))
	}
	return s
}

// Describe is called by Metrics.
func (s *lockerStats) Describe(out chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		out <- d
	}
}

// Collect is called by Metrics.
func (s *lockerStats) Collect(out chan<- prometheus.Metric) {
	stats := s.locker.Stats()
	for i, c := range counts {
		kind := prometheus.GaugeValue
		if strings.HasSuffix(c.name, "_total") {
			kind = prometheus.CounterValue
		}
		out <- prometheus.MustNewConstMetric(s.descs[i], kind, c.of(&stats))
	}
}
