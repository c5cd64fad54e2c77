// Package otelonce shows what onceguard does in OpenTelemetry: spans in the traces of requests, and metrics. Two lines
// wire it:
//
//	locker := lock.New(client, "payments-api", otelonce.Untraced()) // batches begin no traces of their own
//	telemetry := otelonce.New(locker)                               // an option for every Idempotency on locker
//
//	once := middleware.Idempotency(locker, key, telemetry, middleware.WithRequired())
//
// A [once.Guard], and so package grpconce, takes another option:
//
//	guard := once.New(locker, otelonce.Calls())
//
// New and Calls take the global providers (package otel) unless they are given others.
//
// # Traces
//
// A tracing middleware outside of Idempotency, such as otelhttp, begins the span of the request, the server span. If
// that is recorded, New adds:
//
//   - child spans onceguard.claim, onceguard.wait, onceguard.journal and onceguard.settle, for the
//     phases that the request reached (see [middleware.Event]). The handler has none: the spans that it begins are
//     children of the server span;
//   - attributes of the server span: onceguard.outcome; onceguard.key, the hashed key as Redis has it, whose last 64
//     digits a problem's instance has; onceguard.record.size in bytes; onceguard.replay.age in seconds;
//     of a reused key onceguard.first.running and onceguard.first.age, the seconds since that run ended; and
//     onceguard.pending if the response is not stored yet; with [middleware.WithShadow], onceguard.shadow, and
//     onceguard.shadow.differs if the handler answered otherwise than the replay would have;
//   - on a replay, a link from the server span to the run that made the response. For that each sampled run stores its
//     traceparent with its response, 27 bytes ([middleware.WithTraceparent]);
//   - the error of the Event as an exception of the server span, whose exception.type is the word of error.type. If
//     Redis or the journal caused it, the status of that phase's span is an error too. The status of the server span is left to the middleware that began it.
//
// A Redis client with tracing hooks (redisotel) adds a span for each command that is sent alone, as a child of the
// server span. Under load, commands of several requests are sent together, and the lock sends others in the background,
// such as renewals. [Untraced] keeps these from becoming traces. It does not affect what go-redis sends by itself: use
// redisotel.WithDialFilter(true), because go-redis connects in the background.
//
// # Metrics
//
//	onceguard.requests          counter        {request}  outcome, method, route, error
//	onceguard.shadow.requests   counter        {request}  outcome, method, route, error: what would have happened
//	onceguard.store.duration    histogram      s          phase, error: of each call to Redis and the journal
//	onceguard.wait.duration     histogram      s          outcome, method, route, error: of duplicates that waited
//	onceguard.handler.duration  histogram      s          outcome, method, route, error
//	onceguard.record.size       histogram      By         outcome, method, route, error: stored or replayed
//	onceguard.runs.active       updowncounter  {run}      namespace: leases that are held now
//	onceguard.waiters           updowncounter  {request}  namespace: requests that wait for another one now
//	onceguard.leases.lost       counter        {lease}    namespace: two runs may have taken effect
//
// Here outcome is the attribute onceguard.outcome, one of the Outcomes of package middleware; method is
// http.request.method, _OTHER for one that is not standardized; route is http.route, absent where it is not known;
// error is error.type, one of about thirty words such as timeout, lease_lost, record_unreadable and redis_oom, or _OTHER. It
// is absent where Event.Err is nil, except for a 5xx that was stored: stored_5xx. Each repetition gets that response;
// phase is onceguard.phase: claim, journal or settle; and
// namespace is onceguard.namespace, that of [lock.New]. A key or a user is never an attribute of a metric. Names and
// attributes follow the semantic conventions 1.37.
//
// A call of once.Do counts as a request. It has onceguard.operation, the Operation of its key, and neither method nor
// route.
//
// A request in shadow ([middleware.WithShadow]) counts in onceguard.shadow.requests and in onceguard.store.duration,
// and in no other metric.
//
// Alert on onceguard.leases.lost, and on onceguard.requests with the outcome unknown, panicked or store-unavailable, or
// the error.type stored_5xx. A run that died with its process counts nowhere: only its retries do, with the outcome outcome-unknown.
package otelonce
