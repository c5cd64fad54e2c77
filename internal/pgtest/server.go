package pgtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/onceguard/onceguard/internal/child"
)

// Server is a PostgreSQL server on this machine, with its defaults except for 300 connections. It listens only on the
// loopback address, and has no Unix socket. Its methods must not be called concurrently.
type Server struct {
	bin     string         // where the programs are
	as      *child.Account // that it runs as
	dir     string         // its own directory
	port    int
	process *child.Process
}

// immediate is the signal for a crash. It ends the server's own processes, too, and removes its shared memory.
const immediate = syscall.SIGQUIT

// Find returns the directory of PostgreSQL's programs, or an error if it is not installed.
func Find() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return "", err
	}
	newest, best := "", -1
	for _, path := range found {
		bin := filepath.Dir(path)
		if version, err := strconv.Atoi(filepath.Base(filepath.Dir(bin))); err == nil && version > best {
			newest, best = bin, version
		}
	}
	if newest == "" {
		return "", errors.New("PostgreSQL is not installed")
	}
	return newest, nil
}

// Start makes an empty database cluster in a new directory and runs a server on it. It leaves nothing behind if
// it fails.
func Start() (_ *Server, err error) {
	s := &Server{}
	if s.bin, err = Find(); err != nil {
		return nil, err
	}
	if s.as, err = child.Unprivileged("postgres"); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "onceguard-postgresql-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.remove())
		}
	}()
	if err := s.as.Own(s.dir); err != nil {
		return nil, err
	}
	if err := s.initialize(); err != nil {
		return nil, err
	}
	err = errPortTaken
	for try := 0; try < 10 && errors.Is(err, errPortTaken); try++ {
		if s.port, err = child.FreePort(); err == nil {
			err = s.start()
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) initialize() error {
	cmd := exec.Command(filepath.Join(s.bin, "initdb"), "--pgdata", s.data(), "--auth", "trust", "--username", "onceguard",
		"--encoding", "UTF8", "--no-locale", "--no-sync")
	cmd.Dir = s.dir
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := child.Start(cmd, s.as, immediate)
	if err != nil {
		return err
	}
	<-p.Done
	if !cmd.ProcessState.Success() {
		return fmt.Errorf("initdb: %v\n%s", cmd.ProcessState, &out)
	}
	return nil
}

// start runs the server and waits until it accepts connections.
func (s *Server) start() error {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_TRUNC|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), "-D", s.data(), "-p", strconv.Itoa(s.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=300")
	cmd.Dir = s.dir
	cmd.Stdout, cmd.Stderr = log, log
	if s.process, err = child.Start(cmd, s.as, immediate); err != nil {
		return err
	}
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(child.Patience); ; {
		if s.ready() {
			return nil
		}
		select {
		case <-s.process.Done:
			if strings.Contains(s.log(), "Address already in use") {
				return errPortTaken
			}
			return fmt.Errorf("PostgreSQL ended at once: %v\n%s", s.process.Cmd.ProcessState, s.log())
		case <-poll.C:
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("PostgreSQL is not ready\n%s", s.log()), s.stop(immediate))
		}
	}
}

// ready reports whether the server accepts connections. It reads the file that pg_ctl reads too: the first line is the
// server's process, the eighth its state. So another server on the port does not count.
func (s *Server) ready() bool {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	lines := strings.Split(string(text), "\n")
	return err == nil && len(lines) > 7 && lines[0] == strconv.Itoa(s.process.Cmd.Process.Pid) &&
		strings.TrimSpace(lines[7]) == "ready"
}

// Addr is the server's host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL returns a connection string for a schema of the server. addr is Addr, or a proxy's.
func (s *Server) URL(addr, schema string) string {
	return fmt.Sprintf("postgres://onceguard@%s/postgres?sslmode=disable&search_path=%s", addr, schema)
}

// stop ends the server by a signal: SIGINT rolls back open transactions and shuts down, SIGQUIT is a crash.
func (s *Server) stop(how syscall.Signal) error {
	if s.process == nil {
		return nil
	}
	return s.process.Stop(how)
}

// Crash ends the server at once, as a power failure would, except that the kernel still writes its buffers. All
// connections break.
func (s *Server) Crash() error { return s.stop(immediate) }

// Stop shuts the server down: it rolls back open transactions.
func (s *Server) Stop() error { return s.stop(syscall.SIGINT) }

// Restart starts a server that has stopped or crashed, on the same port, and returns when it has recovered and accepts
// connections.
func (s *Server) Restart() error { return s.start() }

// Close shuts the server down, and removes what it has stored.
func (s *Server) Close() error {
	if err := s.Stop(); err != nil {
		return err
	}
	return s.remove()
}

// remove removes what the server has stored.
func (s *Server) remove() error { return os.RemoveAll(s.dir) }

func (s *Server) log() string {
	b, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return fmt.Sprintf("(the log cannot be read: %v)", err)
	}
	return string(b)
}

var errPortTaken = errors.New("the port is taken")
