package otelonce

import (
	"context"

	"go.opentelemetry.io/otel/metric"

	"github.com/onceguard/onceguard/contrib/internal/words"
	"github.com/onceguard/onceguard/lock"
)

// measure observes the counts of l, also after it was closed: the last export, in which a lease may have been lost, comes
// after that.
func measure(l *lock.Locker, meter metric.Meter) {
	runs := made(meter.Int64ObservableUpDownCounter("onceguard.runs.active", metric.WithUnit("{run}"),
		metric.WithDescription("Leases that are held: the requests that run, and what else uses the locker.")))
	waiters := made(meter.Int64ObservableUpDownCounter("onceguard.waiters", metric.WithUnit("{request}"),
		metric.WithDescription("Requests that wait for the response of another one.")))
	lost := made(meter.Int64ObservableCounter("onceguard.leases.lost", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases that were lost while their holder relied on them: two runs may have taken effect.")))
	of := metric.WithAttributes(namespaceKey.String(words.Namespace(l)))
	made(meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := l.Stats()
		o.ObserveInt64(runs, int64(s.Leases), of)
		o.ObserveInt64(waiters, int64(s.Waiters), of)
		o.ObserveInt64(lost, int64(s.Lost), of)
		return nil
	}, runs, waiters, lost))
}
