package redistest

import (
	"errors"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"
)

// NewClient returns a go-redis client for addr. It has go-redis's default options, changed by opts in order. The end of
// the test closes it.
func NewClient(t testing.TB, addr string, opts ...func(*redis.Options)) *redis.Client {
	t.Helper()
	o := &redis.Options{Addr: addr}
	for _, opt := range opts {
		opt(o)
	}
	client := redis.NewClient(o)
	closeAfter(t, "the client of "+addr, client)
	return client
}

// closeAfter closes a client at the end of the test, unless the test has closed it.
func closeAfter(t testing.TB, what string, client io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Errorf("redistest: closing %s: %v", what, err)
		}
	})
}

// OneTry is an option for [NewClient] and every Client method. The client sends a command once, dials once, and
// respects the deadline of the context, so that a test sees the fault and not go-redis's recovery.
func OneTry(o *redis.Options) {
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
}
