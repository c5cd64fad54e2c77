package redistest

import (
	"errors"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"
)

// NewClient returns a go-redis client for addr, which is closed when the test
// ends. Its options are go-redis's own defaults, changed by opts in order.
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

// closeAfter closes a client when the test ends, unless the test has.
func closeAfter(t testing.TB, what string, client io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Errorf("redistest: closing %s: %v", what, err)
		}
	})
}

// OneTry is an option of [NewClient] and of every Client method: a command is
// sent once, over a connection that is dialled once, and the deadline of the
// context holds while it is under way. What a test of a single fault sees is
// then the fault and not the recovery.
func OneTry(o *redis.Options) {
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
}
