package redistest

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// Main is the whole TestMain of a package whose tests use this one:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// It runs the tests, fails if a goroutine is left afterwards, and exits. It does not return.
//
// First it prints to standard error, in one line, which tests are left out: those that need redis-server if there is
// none, and long ones without ONCEGUARD_LONG=1, see [Long]. Unless -test.parallel is set, it runs at least 16 tests in
// parallel.
//
// In a process that [Run] has started, Main only runs that program.
func Main(m *testing.M, programs ...Program) {
	if name, ok := os.LookupEnv(programEnv); ok {
		os.Exit(execute(programs, name))
	}
	if out := leftOut(); len(out) > 0 {
		fmt.Fprintln(os.Stderr, "redistest: left out:", strings.Join(out, "; "))
	}
	flag.Parse()
	// Most tests wait for a lease or a timeout and use no CPU while they wait, so the default of go test, GOMAXPROCS, would
	// leave a machine with few cores idle.
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = flag.Set("test.parallel", strconv.Itoa(max(minParallel, runtime.GOMAXPROCS(0))))
	}
	goleak.VerifyTestMain(m)
}

// minParallel is the smallest number of tests that run in parallel, unless the command line sets another.
const minParallel = 16

// leftOut returns which tests do not run, and why.
func leftOut() (what []string) {
	if _, err := findServer(); err != nil && !required() {
		what = append(what, "the tests that need a real Redis, as redis-server is not on the PATH (the others run on miniredis)")
	}
	if !isLong() {
		what = append(what, "long tests, as "+longEnv+"=1 is not set")
	}
	return what
}

// mustFindServer returns the path of the server. Without one it skips the test, or fails it if a server is required.
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

// findServer returns the path of the server of this run: the one in ONCEGUARD_SERVERS, or redis-server.
func findServer() (string, error) {
	return exec.LookPath(cmp.Or(os.Getenv(serverEnv), "redis-server"))
}

// required reports whether a missing server fails a test: in CI, or if ONCEGUARD_SERVERS names one.
func required() bool { return os.Getenv("CI") == "true" || os.Getenv(serverEnv) != "" }
