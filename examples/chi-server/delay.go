package main

import (
	"context"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// maxDelay is the longest delay that a request can ask for.
const maxDelay = 10 * time.Second

// parseDelay parses the delay of a payment or an order, which gives a client time to send a duplicate. No delay is 0.
func parseDelay(s string) (d time.Duration, ok bool) {
	if s == "" {
		return 0, true
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0 && d <= maxDelay
}

// waitOrDiscard waits for d. If ctx is done first, it returns false and frees the key by Discard, because nothing has
// happened yet. That is all that these handlers need to know about idempotency.
func waitOrDiscard(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		// The only error would be ErrCommitted: a byte of the response has been sent. None has.
		_ = middleware.FromContext(ctx).Discard()
		return false
	}
}
