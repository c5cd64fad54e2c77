package redistest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/child"
)

// Server is a redis-server process for one test. Its methods may be called from any goroutine that may end the test.
type Server struct {
	keyspace
	file []string // configuration file and its args, at the start of the command line
	args []string

	mu  sync.Mutex
	run child.Server // guarded by mu
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

// newServer returns a server that is not started yet. The end of the test stops it.
func newServer(t testing.TB, args ...string) *Server {
	t.Helper()
	path := mustFindServer(t)
	s := &Server{args: args}
	s.run = child.Server{Name: "redis-server", Dir: t.TempDir(), Ready: s.answers, OnCrash: syscall.SIGKILL, Command: func() *exec.Cmd {
		return exec.Command(path, slices.Concat(s.file, []string{
			"--port", strconv.Itoa(s.run.Port),
			"--bind", "127.0.0.1",
			"--dir", s.run.Dir,
			"--save", "",
			"--appendonly", "no",
			"--repl-diskless-sync", "yes", // otherwise a restarted master is not empty; default since 7.0
			"--repl-diskless-sync-delay", "0", // default 5 s, to wait for more replicas
			"--rdb-del-sync-files", "yes", // otherwise a restarted replica is not empty
		}, s.args)...)
	}}
	t.Cleanup(func() {
		s.Kill(t)
		if t.Failed() {
			t.Logf("redis-server on %s:\n%s", s.addr, s.run.Log())
		}
	})
	return s
}

// start starts the servers in parallel, each on a free port.
func start(t testing.TB, servers ...*Server) {
	t.Helper()
	errs := make([]error, len(servers))
	var starting sync.WaitGroup
	for i, s := range servers {
		starting.Go(func() { errs[i] = s.run.Start(); s.addr = s.run.Addr() })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("redistest: %v", err)
	}
}

// answers reports whether the process serves commands. It compares the process ID, because another server may have
// taken the port first.
func (s *Server) answers(pid int) bool {
	server := keyspace{s.run.Addr()}
	return server.query(context.Background(), func(ctx context.Context, c *redis.Client) error {
		info, err := c.Info(ctx, "server").Result()
		if err == nil && !strings.Contains(info, fmt.Sprintf("\r\nprocess_id:%d\r\n", pid)) {
			return errors.New("another server")
		}
		return errors.Join(err, c.Ping(ctx).Err())
	}) == nil
}

// Pause stops the process with SIGSTOP, and returns when every thread has stopped. The kernel still accepts
// connections. The end of the test resumes the process, before the clean-ups that were registered earlier.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	t.Cleanup(func() { s.Resume(t) })
	s.process(t, "pausing", s.run.Pause)
}

// Resume continues a paused process with SIGCONT. It has no effect on one that runs or has ended.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	s.process(t, "resuming", s.run.Resume)
}

// Kill ends the process with SIGKILL, paused or not. It returns when the process has ended and the port refuses
// connections.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.process(t, "killing", s.run.Crash)
}

// Restart kills the server if it runs, starts it again with the same port and arguments, and returns when it answers.
// The server is empty unless the arguments made it persistent.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill(t)
	s.process(t, "restarting", s.run.Restart)
}

func (s *Server) process(t testing.TB, what string, do func() error) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := do(); err != nil {
		t.Fatalf("redistest: %s redis-server on %s: %v", what, s.addr, err)
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
