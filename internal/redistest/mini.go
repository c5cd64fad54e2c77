package redistest

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Mini starts a miniredis. The end of the test stops it.
func Mini(t testing.TB) Backend {
	t.Helper()
	m := miniredis.RunT(t)
	return &mini{keyspace: keyspace{addr: m.Addr()}, server: m}
}

type mini struct {
	keyspace
	server *miniredis.Miniredis
}

func (m *mini) Elapse(_ testing.TB, d time.Duration) { m.server.FastForward(d) }
