package dbtest

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/onceguard/onceguard/internal/pgtest"
)

// Main is the whole TestMain of a package whose tests use this one:
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
//
// It prints in one line what is left out, runs the tests, stops the server if one was started, fails the tests if a
// goroutine is left, and exits. Without -test.parallel, at least eight tests run in parallel: they wait for the
// database most of the time.
func Main(m *testing.M) {
	if _, err := pgtest.Find(); err != nil && !required() {
		fmt.Fprintf(os.Stderr, "dbtest: left out: the tests on PostgreSQL, as %v (the others run on SQLite)\n", err)
	}
	flag.Parse()
	if err := raiseParallel(8); err != nil {
		fmt.Fprintln(os.Stderr, "dbtest:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(run{m})
}

// run stops the shared server after the tests and before the check for goroutines.
type run struct{ m *testing.M }

func (r run) Run() int {
	code := r.m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "dbtest: stopping PostgreSQL:", err)
		code = max(code, 1)
	}
	return code
}

func raiseParallel(least int) error {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if f := flag.Lookup("test.parallel"); !given && f != nil {
		if n, err := strconv.Atoi(f.Value.String()); err == nil && n < least {
			return f.Value.Set(strconv.Itoa(least))
		}
	}
	return nil
}

// required reports whether a test without its server fails: CI relies on the test having run.
func required() bool { return os.Getenv("CI") == "true" }

// shared is the server of this test binary.
var shared sharedServer

// sharedServer is a server that is started when a test first needs it.
type sharedServer struct {
	once   sync.Once
	server *Server
	err    error
}

func (s *sharedServer) get(t testing.TB) *Server {
	t.Helper()
	if _, err := pgtest.Find(); err != nil && !required() {
		t.Skipf("left out: needs PostgreSQL: %v", err)
	}
	s.once.Do(func() {
		var server *pgtest.Server
		if server, s.err = pgtest.Start(); s.err == nil {
			s.server = &Server{server}
		}
	})
	if s.err != nil {
		t.Fatalf("dbtest: %v", s.err)
	}
	return s.server
}

func (s *sharedServer) stop() error {
	if s.server == nil {
		return nil
	}
	return s.server.Close()
}
