package middleware

import (
	"context"
	"net/http"
	"time"

	"github.com/onceguard/onceguard/middleware/internal/record"
)

// Option changes a default of [Idempotency].
type Option func(*options)

type options struct {
	methods      map[string]bool
	required     bool
	retention    time.Duration
	wait         time.Duration
	maxWaiters   int64
	atMostOnce   bool
	stored       func(status int) bool
	maxDuration  time.Duration
	maxBody      int64
	maxResponse  int
	rules        []rule // at least one: see defaultRules
	failOpen     bool
	cookies      bool
	codec        record.Codec
	observe      func(context.Context, Event) // may be nil
	writeProblem func(http.ResponseWriter, *http.Request, Problem)
}

func defaultOptions() options {
	return options{
		methods:      map[string]bool{http.MethodPost: true, http.MethodPatch: true},
		retention:    24 * time.Hour,
		maxWaiters:   1000,
		stored:       StoreDefault,
		maxDuration:  60 * time.Second,
		maxBody:      1 << 20,
		maxResponse:  1 << 20,
		rules:        defaultRules,
		writeProblem: writeProblem,
	}
}

// WithObserver calls f once for every request whose method is protected, after its response, in the goroutine that
// served it. Log and measure here. The context is the request's own: it may be done, for the client may have left. The
// status is what was written here; an http.TimeoutHandler around may have answered otherwise. f is called concurrently.
// It panics when f is nil.
//
// f is not called for a request that runs already under the same key, since the middleware is mounted twice: the outer
// one's is. Nor is it when a key function or the function of [WithFingerprint] has panicked.
func WithObserver(f func(context.Context, Event)) Option {
	if f == nil {
		panic("middleware.WithObserver: f is nil")
	}
	return func(o *options) { o.observe = f }
}

// WithProblem writes the problem responses instead of the default, which is application/problem+json (RFC 9457), or a
// small HTML page in a shopper's words for a client that prefers it. That page has no script, and leads back to where the
// Referer says that the request came from, if that is on the same host. Retry-After, X-Should-Retry, Cache-Control and
// Link are already set when f is called. If f answers with another status, the Event has that of the Problem all the same.
// It panics when f is nil; f is called concurrently.
func WithProblem(f func(http.ResponseWriter, *http.Request, Problem)) Option {
	if f == nil {
		panic("middleware.WithProblem: f is nil")
	}
	return func(o *options) { o.writeProblem = f }
}
