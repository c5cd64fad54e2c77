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
// It runs the tests, fails them if a goroutine is left afterwards, and exits.
// With ONCEGUARD_SERVERS it runs all tests once for each server listed there, and
// says on standard error which one that is. A server that does not start is a
// failure.
// It first says on standard error, in one line, what is left out: without
// redis-server the tests that need one, without ONCEGUARD_LONG=1 what takes long,
// see [Long]. Without -test.parallel, at least eight tests run in parallel. In a
// process that [Run] has started, it runs that program and nothing else. It does
// not return.
func Main(m *testing.M, programs ...Program) {
	if name, ok := os.LookupEnv(programEnv); ok {
		os.Exit(execute(programs, name))
	}
	if out := leftOut(); len(out) > 0 {
		fmt.Fprintln(os.Stderr, "redistest: left out:", strings.Join(out, "; "))
	}
	flag.Parse()
	raiseParallel()
	goleak.VerifyTestMain(matrix{m})
}

func leftOut() (what []string) {
	if _, err := findServer(); err != nil && !required() {
		what = append(what, "the tests that need a real Redis, as redis-server is not on the PATH (the others run on miniredis)")
	}
	if !isLong() {
		what = append(what, "what takes long, as "+longEnv+"=1 is not set")
	}
	return what
}

// minParallel is the least number of tests that run in parallel. Most tests
// wait for a lease or a timeout to end and need no CPU meanwhile, so GOMAXPROCS
// tests at a time, which is go test's default, leave a machine of few cores idle.
const minParallel = 8

// raiseParallel sets -test.parallel unless the caller of go test has.
func raiseParallel() {
	if runtime.GOMAXPROCS(0) >= minParallel {
		return
	}
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(minParallel)); err != nil {
		panic(err)
	}
}

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
