package redistest

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
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
	args []string

	mu      sync.Mutex
	process *process // the latest one, perhaps dead
}

var errPortTaken = errors.New("the port is taken")

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
	s := &Server{path: mustFindServer(t), dir: t.TempDir(), args: args}
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("redis-server on %s:\n%s", s.addr, s.log())
		}
	})
	err := errPortTaken
	for try := 0; try < 10 && errors.Is(err, errPortTaken); try++ {
		s.port = freePort(t)
		s.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
		err = s.launch()
	}
	if err != nil {
		t.Fatalf("redistest: starting redis-server on %s: %v", s.addr, err)
	}
	return s
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

// launch starts a process and waits until it answers. It leaves none behind
// when it fails.
func (s *Server) launch() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	logged := len(s.log())
	p, err := startProcess(s.path, s.commandLine(), s.logFile())
	if err != nil {
		return err
	}
	s.process = p
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !answers(s.addr, p.pid()) {
		select {
		case <-poll.C:
		case <-deadline.C:
			p.kill()
			return fmt.Errorf("no answer within %v", patience)
		case <-p.done:
			if bytes.Contains(s.log()[logged:], []byte("Address already in use")) {
				return errPortTaken
			}
			return fmt.Errorf("it ended at once: %w", p.err)
		}
	}
	return nil
}

func (s *Server) commandLine() []string {
	return append([]string{
		"--port", strconv.Itoa(s.port),
		"--bind", "127.0.0.1",
		"--dir", s.dir,
		"--save", "",
		"--appendonly", "no",
	}, s.args...)
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

// answers reports whether the process pid serves commands at addr. An answer
// alone would not tell it from another server that took the port first.
func answers(addr string, pid int) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(time.Second)) != nil {
		return false
	}
	_, err = conn.Write([]byte("*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n*1\r\n$4\r\nPING\r\n"))
	if err != nil {
		return false
	}
	in := newSplitter(conn)
	info, err := in.reply()
	if err != nil || !bytes.Contains(info.raw, fmt.Appendf(nil, "\r\nprocess_id:%d\r\n", pid)) {
		return false
	}
	pong, err := in.reply()
	return err == nil && string(pong.raw) == "+PONG\r\n"
}
