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

// Server is a redis-server process of this machine that a test has for itself.
// Its methods may be called from any goroutine that may end the test.
type Server struct {
	keyspace
	path string
	dir  string
	port int
	bus  bool     // it is a Cluster node, and needs the port of the Cluster bus too
	file []string // what the command line begins with: a configuration file
	args []string

	mu      sync.Mutex
	process *process // the latest one, perhaps dead
}

// Start runs redis-server on a free loopback port, empty and without
// persistence, and returns when it answers. The args are appended to the
// command line, where the last one wins:
//
//	redistest.Start(t, "--appendonly", "yes", "--maxmemory", "2mb")
//
// When the test ends, the process is killed, and if the test failed, its log is
// shown. On Linux it also dies with a test binary that is killed; elsewhere
// it then stays behind.
//
// Without redis-server on the PATH the test is skipped, or fails if CI=true.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartMasters(t, 1, args...)[0]
}

// StartMasters runs n servers that know nothing of each other, as [Start] does
// and all at once, each with the same args: those of a Redlock.
func StartMasters(t testing.TB, n int, args ...string) []*Server {
	t.Helper()
	servers := make([]*Server, n)
	for i := range servers {
		servers[i] = newServer(t, args...)
	}
	start(t, servers...)
	return servers
}

// Pause stops the process with SIGSTOP and returns once it stands still: the
// kernel goes on accepting connections for it, nobody answers. The end of the
// test resumes it, before the clean-ups that were registered earlier.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	t.Cleanup(func() { s.Resume(t) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.process.pause(); err != nil {
		t.Fatalf("redistest: pausing redis-server on %s: %v", s.addr, err)
	}
}

// Resume continues a paused process with SIGCONT. It does nothing to one that
// runs, or is dead.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.process.resume(); err != nil {
		t.Fatalf("redistest: resuming redis-server on %s: %v", s.addr, err)
	}
}

// Kill ends the process with SIGKILL, paused or not, and returns when it is
// gone: the port refuses connections.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.stop()
}

// Restart starts the server again on the same port and with the same
// arguments, after killing it if it still runs, and returns when it answers. It
// is empty, unless the arguments of [Start] made it persistent.
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

// Elapse is described at [Backend].
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
