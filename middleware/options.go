package middleware

import (
	"context"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/internal/option"
	"github.com/onceguard/onceguard/internal/run"
	"github.com/onceguard/onceguard/keyfunc"
)

// Option changes a default of [New] and [Idempotency].
type Option func(*options)

type options struct {
	policy       run.Policy
	methods      map[string]bool
	required     bool
	keyAge       time.Duration // 0 without WithKeyAge
	keyPart      keyfunc.Func  // of WithKeyAge
	shouldStore  func(status int) bool
	forgetsFails bool                                      // WithoutServerErrors
	nothing      func(status int, header http.Header) bool // nil without WithNothingHappened
	maxBody      int64
	maxResponse  int
	rules        []rule // at least one; see defaultRules
	shadow       bool
	cookies      bool
	observe      func(context.Context, Event)                      // nil without WithObserver
	traceparent  func(context.Context) string                      // nil without WithTraceparent
	writeProblem func(http.ResponseWriter, *http.Request, Problem) // nil without WithProblem
	statuses     map[string]int                                    // by Problem.Type; nil without WithProblemStatus
	echoName     string                                            // of WithKeyEcho
	echoPart     keyfunc.Func                                      // nil without WithKeyEcho
	replayHeader string
}

// WithObserver calls f once for every request whose method is protected, after its response, in the goroutine that
// served it. By default nothing is called. Use it to log and to measure. f is called concurrently. If the option is
// given more than once, each f is called, in that order. WithObserver panics when f is nil.
//
// Packages contrib/otelonce and contrib/promonce have observers for OpenTelemetry and Prometheus.
//
// ctx is the request's own context. It may be done, because the client may have disconnected. Event.Status is what the
// middleware has written. An http.TimeoutHandler around it may have sent another status.
//
// f is not called when the key function or the function of [WithFingerprint] has panicked. If the middleware is mounted
// twice, only the outer one calls f for a request that both cover under the same key.
func WithObserver(f func(context.Context, Event)) Option {
	option.Check(f != nil, "middleware.WithObserver: f is nil")
	return func(o *options) { o.observe = option.Both(o.observe, f) }
}

// WithTraceparent stores, with each response, what f returns for the run's request: the traceparent of W3C Trace
// Context (section 3.2) by which the run is found in a tracing system. A replay then has it in [Event].Traceparent. By
// default nothing is stored. Package contrib/otelonce provides one.
//
// Only version 00 is stored, "00-" and 52 more characters, as 27 bytes. Anything else that f returns is ignored. It is
// encrypted with the record ([WithEncryption]). Other instances read such a record, whatever their options and release.
// ctx is the request's own context. f is called concurrently. WithTraceparent panics when f is nil.
func WithTraceparent(f func(context.Context) string) Option {
	option.Check(f != nil, "middleware.WithTraceparent: f is nil")
	return func(o *options) { o.traceparent = f }
}
