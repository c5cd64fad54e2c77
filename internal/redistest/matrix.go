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

// serversEnv lists the servers to test on: paths of executables, separated as in PATH. A wrapper script must exec the
// server, to keep its process ID.
const serversEnv = "ONCEGUARD_SERVERS"

// realName is the name of the subtest of [Each] on a real server. It changes only between two runs of a matrix.
var realName = "redis"

// matrix runs the tests once for each server that serversEnv lists. During a run the variable names only that server,
// also for child processes.
type matrix struct{ m *testing.M }

// Run returns the first exit code that is not 0, or 0. A server that does not start is a failure, but the tests run on
// the others.
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

// identify starts a server and returns its name and version, such as "redis-7.0.15" or "valkey-8.1.1".
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
	if err := s.startOnFreePort(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, s.log())
	}
	defer s.stop()
	err = s.query(context.Background(), func(ctx context.Context, c *redis.Client) error {
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

// Since skips the test if the server is older than the version of Redis, such as "6.2", that introduced the feature.
// For Valkey it uses the version of Redis with which the server reports compatibility.
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

// isOlder reports whether the version got is before want. It compares as many components as want has.
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

// Since is [Server.Since] for a test without a Server: it starts one to ask it. It skips only if
// ONCEGUARD_SERVERS names the server.
func Since(t testing.TB, version, feature string) {
	t.Helper()
	if _, err := findServer(); err == nil && os.Getenv(serversEnv) != "" {
		Start(t).Since(t, version, feature)
	}
}
