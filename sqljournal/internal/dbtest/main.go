package dbtest

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

// Main is the whole TestMain of a package whose tests use this one:
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
//
// It runs the tests, stops the servers that were started, fails the tests if a goroutine is left, and exits. Without -test.parallel, at least eight tests run in parallel: they wait for the
// database most of the time.
func Main(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue && runtime.GOMAXPROCS(0) < 8 {
		_ = f.Value.Set("8") // it is a number
	}
	goleak.VerifyTestMain(run{m})
}

// run stops the shared server after the tests and before the check for goroutines.
type run struct{ m *testing.M }

func (r run) Run() int {
	code := r.m.Run()
	for kind, server := range shared {
		if server.process == nil {
			continue
		}
		if err := server.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "dbtest: stopping %s: %v\n", kind, err)
			code = max(code, 1)
		}
	}
	return code
}
