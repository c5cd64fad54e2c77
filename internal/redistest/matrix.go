package redistest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// serversEnv lists the servers to test on: paths of executables, separated as
// those of PATH are. A wrapper script must exec the server, so that both have
// the same process ID.
const serversEnv = "ONCEGUARD_SERVERS"

// realName is the name of the subtest that [Each] runs on a real server. It
// changes only between two runs of a matrix, when no test runs.
var realName = "redis"

// matrix runs the tests once for each server that serversEnv lists. During a
// run the variable names that server alone, which is also what child processes
// inherit.
type matrix struct{ m *testing.M }

// Run returns the exit code of the first run that failed, or 0. A server that
// does not start is a failure; the tests still run on the others.
func (x matrix) Run() (code int) {
	paths := os.Getenv(serversEnv)
	if paths == "" {
		return x.m.Run()
	}
	for _, path := range filepath.SplitList(paths) {
		name, err := identify(path)
		if err == nil {
			err = os.Setenv(serversEnv, path)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "redistest: %s names %q: %v\n", serversEnv, path, err)
			code = cmp.Or(code, 1)
			continue
		}
		fmt.Fprintf(os.Stderr, "redistest: the tests run on %s, %s\n", name, path)
		realName = name
		code = cmp.Or(code, x.m.Run())
	}
	return code
}

// identify starts a server and returns its name and version: "redis-7.0.15",
// "valkey-8.1.1".
func identify(path string) (name string, err error) {
	path, err = exec.LookPath(path)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	s := &Server{path: path, dir: dir}
	if err := s.begin(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, s.log())
	}
	defer s.stop()
	err = s.glance(context.Background(), func(ctx context.Context, c *redis.Client) error {
		info, err := c.InfoMap(ctx, "server").Result()
		server := info["Server"]
		name = "redis-" + server["redis_version"]
		if version, ok := server["valkey_version"]; ok {
			name = "valkey-" + version
		}
		return err
	})
	return name, err
}

// Since skips the test if the server is older than that version of Redis, as
// "6.2", which has the feature that the test is about. Valkey counts as the
// Redis that it says it is compatible with.
func (s *Server) Since(t testing.TB, version, feature string) {
	t.Helper()
	var got string
	s.do(t, "INFO server", func(ctx context.Context, c *redis.Client) error {
		info, err := c.InfoMap(ctx, "server").Result()
		got = info["Server"]["redis_version"]
		return err
	})
	if isOlder(got, version) {
		t.Skipf("left out on Redis %s: %s came with Redis %s", got, feature, version)
	}
}

// isOlder reports whether the version got comes before want. It compares as
// many numbers as want has.
func isOlder(got, want string) bool {
	have := strings.Split(got, ".")
	for i, w := range strings.Split(want, ".") {
		h := "0"
		if i < len(have) {
			h = have[i]
		}
		a, _ := strconv.Atoi(h)
		b, _ := strconv.Atoi(w)
		if a != b {
			return a < b
		}
	}
	return false
}

// Since is [Server.Since] for the server of this run, for a test that has none of
// its own at hand. Without redis-server it skips nothing.
func Since(t testing.TB, version, feature string) {
	t.Helper()
	if _, err := findServer(); err == nil && os.Getenv(serversEnv) != "" {
		Start(t).Since(t, version, feature)
	}
}
