package main

import (
	"context"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// maxDelay is the longest that a request can ask for.
const maxDelay = 10 * time.Second

// parseDelay reads how long a payment or an order is to take, so that there is time to send a duplicate.
func parseDelay(s string) (d time.Duration, ok bool) {
	if s == "" {
		return 0, true
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0 && d <= maxDelay
}

// takeTime waits for d, and tells whether there was time for that. If not, it says what is all that the handlers here know
// of idempotency: that certainly nothing has happened. Then the key is free again.
func takeTime(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		// ErrCommitted would mean that a byte has left, and none has; the answer is the same.
		_ = middleware.FromContext(ctx).Discard()
		return false
	}
}
