package redistest

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
)

// serverEnv names the program of the server to test on, by default redis-server. A wrapper script must exec the server,
// to keep its process ID.
const serverEnv = "ONCEGUARD_SERVERS"

// Since skips the test if the server is older than the version of Redis, such as "6.2", that introduced the feature.
// For Valkey it uses the version of Redis with which the server reports compatibility.
func (s *Server) Since(t testing.TB, version, feature string) {
	t.Helper()
	var info map[string]map[string]string
	s.do(t, "INFO server", func(ctx context.Context, c *redis.Client) (err error) {
		info, err = c.InfoMap(ctx, "server").Result()
		return err
	})
	got := info["Server"]["redis_version"]
	var have, want [2]int
	_, err := fmt.Sscanf(got, "%d.%d", &have[0], &have[1])
	if err == nil {
		_, err = fmt.Sscanf(version, "%d.%d", &want[0], &want[1])
	}
	if err != nil {
		t.Fatalf("redistest: version %q or %q: %v", got, version, err)
	}
	if have[0] < want[0] || have[0] == want[0] && have[1] < want[1] {
		t.Skipf("left out on Redis %s: %s came with Redis %s", got, feature, version)
	}
}

// Since is [Server.Since] for a test without a Server: it starts one to ask it. It skips only if
// ONCEGUARD_SERVERS names the server.
func Since(t testing.TB, version, feature string) {
	t.Helper()
	if _, err := findServer(); err == nil && os.Getenv(serverEnv) != "" {
		Start(t).Since(t, version, feature)
	}
}
