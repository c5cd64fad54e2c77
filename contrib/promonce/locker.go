package promonce

import (
	"reflect"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/onceguard/onceguard/lock"
)

// counts are the metrics that [lock.Locker.Stats] has, with the name of the field.
var counts = []struct {
	name, field, help string
}{
	{"runs_active", "Leases", "Leases that are valid now: the requests that run, and what else uses the locker."},
	{"waiters", "Waiters", "Requests that wait for the response of another one now."},
	{"subscriptions", "Subscriptions", "Keys that waiters are subscribed to now."},
	{"commands_queued", "Queued", "Commands that wait to be sent to Redis now."},
	{"commands_in_flight", "InFlight", "Commands that were sent to Redis and have no reply now."},
	{"batches_total", "Batches", "Batches of commands that were sent to Redis."},
	{"commands_total", "Commands", "Commands that were sent to Redis."},
	{"retries_total", "Retries", "Tries after the first one of an operation on Redis."},
	{"operations_given_up_total", "GivenUp", "Operations that ended without an answer from Redis."},
	{"renewals_total", "Renewals", "Renewals of leases that Redis confirmed."},
	{"leases_lost_total", "Lost", "Leases that were lost while their holder relied on them: two runs may have taken effect."},
	{"settles_pending", "Pending", "Values that could not be stored yet and are retried in the background now."},
	{"settles_pending_bytes", "PendingBytes", "Total size of the values that could not be stored yet."},
	{"settles_late_total", "SettledLate", "Values that were stored in the background, or no longer had to be."},
	{"settles_given_up_total", "SettlesGivenUp", "Values that were never stored."},
	{"releases_pending", "Releases", "Claims that no run needs and that are released in the background now."},
	{"releases_given_up_total", "ReleasesGivenUp", "Claims that no run needs and that may stay: their keys may be abandoned."},
}

// registerStats registers the metrics of a Locker.
func registerStats(reg prometheus.Registerer, l *lock.Locker, of prometheus.Labels) {
	for _, c := range counts {
		opts := prometheus.Opts{Name: "onceguard_" + c.name, Help: c.help, ConstLabels: of}
		value := func() float64 {
			stats := reflect.ValueOf(l.Stats())
			return stats.FieldByName(c.field).Convert(reflect.TypeFor[float64]()).Float()
		}
		if strings.HasSuffix(c.name, "_total") {
			reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts(opts), value))
		} else {
			reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts), value))
		}
	}
}
