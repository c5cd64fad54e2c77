package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
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
	var have, want [2]int
	s.do(t, "INFO server", func(ctx context.Context, c *redis.Client) error {
		info, err := c.InfoMap(ctx, "server").Result()
		_, isVersion := fmt.Sscanf(info["Server"]["redis_version"], "%d.%d", &have[0], &have[1])
		_, wantsVersion := fmt.Sscanf(version, "%d.%d", &want[0], &want[1])
		return errors.Join(err, isVersion, wantsVersion)
	})
	if slices.Compare(have[:], want[:]) < 0 {
		t.Skipf("left out on Redis %d.%d: %s came with Redis %s", have[0], have[1], feature, version)
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
