package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

var errPortTaken = errors.New("the port is taken")

// newServer returns a server that is not started yet. The end of the test stops it.
func newServer(t testing.TB, args ...string) *Server {
	t.Helper()
	s := &Server{path: mustFindServer(t), dir: t.TempDir(), args: args}
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("redis-server on %s:\n%s", s.addr, s.log())
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
		starting.Go(func() { errs[i] = s.startOnFreePort() })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("redistest: %v", err)
	}
}

// startOnFreePort launches the server on a free port.
func (s *Server) startOnFreePort() error {
	err := errPortTaken
	for try := 0; try < 10 && errors.Is(err, errPortTaken); try++ {
		if s.port, err = freePort(s.bus); err != nil {
			return err
		}
		s.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
		err = s.launch()
	}
	if err != nil {
		return fmt.Errorf("starting redis-server on %s: %w", s.addr, err)
	}
	return nil
}

// launch starts the process and waits until it answers. If it fails, it leaves no process behind.
func (s *Server) launch() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	logged := len(s.log())
	log, err := os.OpenFile(s.logFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.path, s.commandLine()...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := startProcess(cmd)
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
			return fmt.Errorf("it ended at once: %v", p.cmd.ProcessState)
		}
	}
	return nil
}

func (s *Server) commandLine() []string {
	return slices.Concat(s.file, []string{
		"--port", strconv.Itoa(s.port),
		"--bind", "127.0.0.1",
		"--dir", s.dir,
		"--save", "",
		"--appendonly", "no",
		"--repl-diskless-sync", "yes", // otherwise a restarted master is not empty; default since 7.0
		"--repl-diskless-sync-delay", "0", // default 5 s, to wait for more replicas
		"--rdb-del-sync-files", "yes", // otherwise a restarted replica is not empty
	}, s.args)
}

// answers reports whether the process pid serves commands at addr. It compares the process ID, because another server
// may have taken the port first.
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
