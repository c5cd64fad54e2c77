// Package promonce shows what onceguard does in Prometheus. Two lines wire it:
//
//	metrics := promonce.New(prometheus.DefaultRegisterer, locker) // once for each Locker
//
//	once := middleware.Idempotency(locker, key, middleware.WithObserver(metrics.Observe), middleware.WithRequired())
//
// A [once.Guard], and so package grpconce, takes another function:
//
//	guard := once.New(locker, once.WithObserver(metrics.ObserveCall))
//
// promhttp.Handler serves the metrics. Beside this file are dashboard.json, a dashboard for Grafana, and alerts.yml,
// rules for Prometheus with the alerts that an operator needs.
//
// # Metrics
//
// Of requests, by [Metrics.Observe], and of calls of once.Do, by [Metrics.ObserveCall]:
//
//	onceguard_requests_total            counter    outcome, method, route, error_type
//	onceguard_shadow_requests_total     counter    outcome, method, route, error_type: what would have happened
//	onceguard_shadow_differs_total      counter    outcome, method, route: of these, with another answer than the replay
//	onceguard_handler_duration_seconds  histogram  outcome, method, route
//	onceguard_wait_duration_seconds     histogram  outcome, method, route: of duplicates that waited
//	onceguard_record_size_bytes         histogram  outcome, method, route: of responses that were stored or replayed
//	onceguard_store_duration_seconds    histogram  phase, error_type: of the calls to Redis and to the journal
//
// A request in shadow ([middleware.WithShadow]) counts in the metrics of shadow and in onceguard_store_duration_seconds
// only.
//
// Of the Locker, from [lock.Locker.Stats], which has their exact meaning:
//
//	onceguard_runs_active               gauge      Stats.Leases
//	onceguard_waiters                   gauge      Stats.Waiters
//	onceguard_subscriptions             gauge      Stats.Subscriptions
//	onceguard_commands_queued           gauge      Stats.Queued
//	onceguard_commands_in_flight        gauge      Stats.InFlight
//	onceguard_batches_total             counter    Stats.Batches
//	onceguard_commands_total            counter    Stats.Commands
//	onceguard_retries_total             counter    Stats.Retries
//	onceguard_operations_given_up_total counter    Stats.GivenUp
//	onceguard_renewals_total            counter    Stats.Renewals
//	onceguard_leases_lost_total         counter    Stats.Lost
//	onceguard_settles_pending           gauge      Stats.Pending
//	onceguard_settles_pending_bytes     gauge      Stats.PendingBytes
//	onceguard_settles_late_total        counter    Stats.SettledLate
//	onceguard_settles_given_up_total    counter    Stats.SettlesGivenUp
//	onceguard_releases_pending          gauge      Stats.Releases
//	onceguard_releases_given_up_total   counter    Stats.ReleasesGivenUp
//
// All have the label locker, the namespace of the Locker or what [WithName] sets. The other labels are:
//
//   - outcome: a [middleware.Outcome]
//   - method: of HTTP, or _OTHER for one that neither RFC 9110 (section 9) nor RFC 5789 defines; empty for a call
//   - route: the path of [middleware.Event].Pattern, or what [WithRoute] returns; empty if it is not known. For a call, its
//     Operation
//   - error_type: one of about thirty words such as timeout, lease_lost, record_unreadable and redis_oom, or _OTHER. It is
//     empty if [middleware.Event].Err is nil, except for a 5xx that was stored: stored_5xx. An unprotected request with an
//     error_type is one of [middleware.WithFailOpen]. outside_transaction: the journal protects nothing there
//   - phase: claim, journal or settle. Here error_type says that this call failed
//
// A key or a user is never a label.
//
// Each histogram is a native one and has classic buckets too: a server that does not scrape native histograms sees the
// classic ones.
//
// # Alerts on rare events
//
// A series begins with its first event, and increase() does not see the step from nothing to 1. The rules in alerts.yml
// count it: use the series onceguard:requests:increase5m, which they record, in rules of your own.
package promonce
