package dbtest

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/onceguard/onceguard/internal/mysqltest"
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
	for _, kind := range Servers {
		if err := find[kind](); err != nil && !required() {
			fmt.Fprintf(os.Stderr, "dbtest: left out: the tests on %s, as %v\n", kind, err)
		}
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
	for kind, server := range shared {
		if err := server.stop(); err != nil {
			fmt.Fprintf(os.Stderr, "dbtest: stopping %s: %v\n", kind, err)
			code = max(code, 1)
		}
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

// find returns an error if a kind of server is not installed.
var find = map[Kind]func() error{
	KindPostgreSQL: func() error { _, err := pgtest.Find(); return err },
	KindMySQL:      func() error { _, err := mysqltest.Find(); return err },
}

// shared are the servers of this test binary.
var shared = map[Kind]*sharedServer{KindPostgreSQL: {kind: KindPostgreSQL}, KindMySQL: {kind: KindMySQL}}

// sharedServer is a server that is started when a test first needs it.
type sharedServer struct {
	kind   Kind
	once   sync.Once
	server *Server
	err    error
}

func (s *sharedServer) get(t testing.TB) *Server {
	t.Helper()
	if err := find[s.kind](); err != nil && !required() {
		t.Skipf("left out: %v", err)
	}
	s.once.Do(func() { s.server, s.err = startServer(s.kind) })
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
