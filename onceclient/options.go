package onceclient

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"time"
)

// Option changes a default of [New].
type Option func(*config)

type config struct {
	header     string
	methods    map[string]bool
	limit      time.Duration
	tryTimeout time.Duration
	backoffMin time.Duration
	backoffMax time.Duration
	maxBody    int64
	observer   func(context.Context, Attempt)
}

func defaults() config {
	return config{
		header:     "Idempotency-Key",
		methods:    map[string]bool{http.MethodPost: true, http.MethodPatch: true},
		limit:      90 * time.Second,
		tryTimeout: 30 * time.Second,
		backoffMin: 200 * time.Millisecond,
		backoffMax: 5 * time.Second,
		maxBody:    1 << 20,
		observer:   func(context.Context, Attempt) {},
	}
}

// WithLimit sets how long RoundTrip may take, pauses included, from its first try to the end of the last one. The
// default is 90 s. The last pause is shortened so that a last try fits.
//
// It should be longer than the server's WithMaxDuration and its lease together (60 s and 10 s by default): then every
// run ends before the client gives up. A d that is not positive panics.
func WithLimit(d time.Duration) Option {
	mustBePositive("WithLimit", d)
	return func(c *config) { c.limit = d }
}

// WithTryTimeout sets how long one try waits for the response: for its header and its body, but for what is streamed. The
// default is 30 s. When a try times out, the request may still run on the server: the next try gets its response, or
// 409 in-flight until there is one. A d that is not positive panics.
func WithTryTimeout(d time.Duration) Option {
	mustBePositive("WithTryTimeout", d)
	return func(c *config) { c.tryTimeout = d }
}

// WithBackoff sets the bounds of the pauses: before the nth repetition it is random between 0 and the lesser of
// longest and shortest*2^(n-1). The defaults are 200 ms and 5 s. It panics unless 0 < shortest <= longest.
func WithBackoff(shortest, longest time.Duration) Option {
	mustBePositive("WithBackoff", shortest)
	if longest < shortest {
		panic(fmt.Sprintf("onceclient.WithBackoff: %v is less than %v", longest, shortest))
	}
	return func(c *config) { c.backoffMin, c.backoffMax = shortest, longest }
}

// WithMaxBody sets how many bytes of a request body without GetBody are kept in memory so that they can be sent again.
// A longer body is sent once. The default is 1 MiB, as for the server's WithMaxBody. With 0 no body is kept. A negative
// n panics.
func WithMaxBody(n int64) Option {
	if n < 0 {
		panic(fmt.Sprintf("onceclient.WithMaxBody: %d is negative", n))
	}
	return func(c *config) { c.maxBody = min(n, math.MaxInt64-1) }
}

// WithMethods sets the methods that get a key and are repeated. The default is POST and PATCH. Other methods go to the
// base as they are. The server must cover the same methods. No method, or an invalid one, panics.
func WithMethods(methods ...string) Option {
	if len(methods) == 0 {
		panic("onceclient.WithMethods: no method")
	}
	covered := make(map[string]bool, len(methods))
	for _, m := range methods {
		if !isToken(m) {
			panic(fmt.Sprintf("onceclient.WithMethods: %q is not a method", m))
		}
		covered[m] = true
	}
	return func(c *config) { c.methods = covered }
}

// WithHeader sets the header that carries the key. The default is Idempotency-Key. An invalid name panics.
func WithHeader(name string) Option {
	if !isToken(name) {
		panic(fmt.Sprintf("onceclient.WithHeader: %q is not the name of a header", name))
	}
	name = http.CanonicalHeaderKey(name)
	return func(c *config) { c.header = name }
}

// WithObserver sets a function that is called after each try, in the goroutine of RoundTrip, with the context of the
// request. It must be safe for concurrent use. By default none is called. A nil f panics.
func WithObserver(f func(context.Context, Attempt)) Option {
	if f == nil {
		panic("onceclient.WithObserver: f is nil")
	}
	return func(c *config) { c.observer = f }
}

func mustBePositive(option string, d time.Duration) {
	if d <= 0 {
		panic(fmt.Sprintf("onceclient.%s: %v is not positive", option, d))
	}
}

// isToken reports whether s is a token of RFC 9110 section 5.6.2, as methods and the names of headers are.
func isToken(s string) bool {
	_, err := http.NewRequest(s, "/", nil)
	return s != "" && err == nil
}
