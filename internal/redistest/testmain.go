package redistest

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"
)

// Main is the whole TestMain of a package whose tests use this one:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// It runs the tests, fails them if a goroutine is left afterwards, and exits.
// With ONCEGUARD_SERVERS it runs all tests once for each server listed there, and
// says on standard error which one that is. A server that does not start is a
// failure.
// When redis-server is missing, it first says on standard error, in one line,
// what is left out. In a process that [Run] has started, it runs that program
// and nothing else. It does not return.
func Main(m *testing.M, programs ...Program) {
	if name, ok := os.LookupEnv(programEnv); ok {
		os.Exit(execute(programs, name))
	}
	if _, err := findServer(); err != nil && !required() {
		fmt.Fprintln(os.Stderr, leftOut)
	}
	goleak.VerifyTestMain(matrix{m})
}

const leftOut = "redistest: redis-server is not on the PATH: left out are the tests that need a real Redis; the others run on miniredis"

// mustFindServer skips the test without redis-server, or fails it where the test
// has to run.
func mustFindServer(t testing.TB) string {
	t.Helper()
	path, err := findServer()
	switch {
	case err == nil:
		return path
	case required():
		t.Fatalf("redistest: a real Redis is required: %v", err)
	default:
		t.Skip("left out: needs a real Redis, and redis-server is not on the PATH")
	}
	return ""
}

// findServer returns the server of this run: what ONCEGUARD_SERVERS names, or
// redis-server.
func findServer() (string, error) {
	return exec.LookPath(cmp.Or(os.Getenv(serversEnv), "redis-server"))
}

// required reports whether a test without its server fails: CI relies on the
// test having run, and so does whoever named a server.
func required() bool { return os.Getenv("CI") == "true" || os.Getenv(serversEnv) != "" }
