package redistest

import (
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
	goleak.VerifyTestMain(m)
}

const leftOut = "redistest: redis-server is not on the PATH: left out are the tests that need a real Redis; the others run on miniredis"

// mustFindServer skips the test without redis-server, or fails it where CI
// relies on the test having run.
func mustFindServer(t testing.TB) string {
	t.Helper()
	path, err := findServer()
	switch {
	case err == nil:
		return path
	case required():
		t.Fatal("redistest: CI=true, but redis-server is not on the PATH")
	default:
		t.Skip("left out: needs a real Redis, and redis-server is not on the PATH")
	}
	return ""
}

func findServer() (string, error) { return exec.LookPath("redis-server") }

func required() bool { return os.Getenv("CI") == "true" }
