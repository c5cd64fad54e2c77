package redistest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is a redis-server process for one test. Its methods may be called from any goroutine that may end the test.
type Server struct {
	keyspace
	path string
	dir  string
	port int
	bus  bool     // a Cluster node, which also needs the port of the Cluster bus
	file []string // configuration file and its args, at the start of the command line
	args []string

	mu      sync.Mutex
	process *process // the latest one, which may have ended
}

// Start runs redis-server on a free loopback port, empty and without persistence. It returns when the server answers.
// The args follow the default ones on the command line, where the last one wins:
//
//	redistest.Start(t, "--appendonly", "yes", "--maxmemory", "2mb")
//
// The end of the test kills the process, as does, on Linux only, the end of the test binary. The log of a failed test
// has its output.
//
// If redis-server is not on the PATH, the test is skipped, or fails with CI=true.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartMasters(t, 1, args...)[0]
}

// StartMasters starts n independent servers in parallel, each as [Start] does and with the same args, for example for a
// RedLock.
func StartMasters(t testing.TB, n int, args ...string) []*Server {
	t.Helper()
	servers := make([]*Server, n)
	for i := range servers {
		servers[i] = newServer(t, args...)
	}
	start(t, servers...)
	return servers
}

// Pause stops the process with SIGSTOP, and returns when every thread has stopped. The kernel still accepts
// connections. The end of the test resumes the process, before the clean-ups that were registered earlier.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	t.Cleanup(func() { s.Resume(t) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.process.pause(); err != nil {
		t.Fatalf("redistest: pausing redis-server on %s: %v", s.addr, err)
	}
}

// Resume continues a paused process with SIGCONT. It has no effect on one that runs or has ended.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.process.resume(); err != nil {
		t.Fatalf("redistest: resuming redis-server on %s: %v", s.addr, err)
	}
}

// Kill ends the process with SIGKILL, paused or not. It returns when the process has ended and the port refuses
// connections.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.stop()
}

// Restart kills the server if it runs, starts it again with the same port and arguments, and returns when it answers.
// The server is empty unless the arguments made it persistent.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.stop()
	deadline := time.Now().Add(patience)
	err := s.launch()
	for errors.Is(err, errPortTaken) && time.Now().Before(deadline) {
		err = s.launch()
	}
	if err != nil {
		t.Fatalf("redistest: restarting redis-server on %s: %v", s.addr, err)
	}
}

//go:embed elapse.lua
var elapse string

// Elapse implements [Backend].
func (s *Server) Elapse(t testing.TB, d time.Duration) {
	t.Helper()
	s.do(t, "Elapse", func(ctx context.Context, c *redis.Client) error {
		return c.Eval(ctx, elapse, nil, d.Milliseconds()).Err()
	})
}

func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		s.process.kill()
	}
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "redis-server.log") }

func (s *Server) log() []byte {
	log, err := os.ReadFile(s.logFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Appendf(nil, "(the log cannot be read: %v)", err)
	}
	return log
}
