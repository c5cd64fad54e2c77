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

// newServer returns a server that is yet to be started, and ends with the test.
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

// start gives each server its port and runs it, all at once.
func start(t testing.TB, servers ...*Server) {
	t.Helper()
	errs := make([]error, len(servers))
	var starting sync.WaitGroup
	for i, s := range servers {
		starting.Go(func() { errs[i] = s.begin() })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("redistest: %v", err)
	}
}

// begin launches the server on a port that is free.
func (s *Server) begin() error {
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

// launch starts a process and waits until it answers. It leaves none behind
// when it fails.
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
		"--repl-diskless-sync", "yes", // or a master is not empty when it is restarted; the default since 7.0
		"--repl-diskless-sync-delay", "0", // 5 s, for more replicas to come
		"--rdb-del-sync-files", "yes", // or a replica is not empty when it is restarted
	}, s.args)
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
