package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/onceguard/onceguard/internal/child"
)

// Server is a PostgreSQL server on this machine, with its defaults except for 300 connections. It listens only on the
// loopback address, and has no Unix socket. Its methods must not be called concurrently.
type Server struct{ server child.Server }

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
func Start() (*Server, error) {
	bin, err := Find()
	if err != nil {
		return nil, err
	}
	as, err := child.Unprivileged("postgres")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "onceguard-postgresql-")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	s := &Server{child.Server{Name: "PostgreSQL", Dir: dir, As: as, Last: immediate}}
	s.server.Command = func() *exec.Cmd {
		return exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-p", strconv.Itoa(s.server.Port),
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=300")
	}
	// Ready reads the file that pg_ctl reads too: the first line is the server's process, the eighth its state. So another
	// server on the port does not count.
	s.server.Ready = func(pid int) bool {
		text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
		lines := strings.Split(string(text), "\n")
		return err == nil && len(lines) > 7 && lines[0] == strconv.Itoa(pid) && strings.TrimSpace(lines[7]) == "ready"
	}
	if err = as.Own(dir); err == nil {
		err = s.server.Initialize(exec.Command(filepath.Join(bin, "initdb"), "--pgdata", data, "--auth", "trust",
			"--username", "onceguard", "--encoding", "UTF8", "--no-locale", "--no-sync"))
	}
	if err == nil {
		err = s.server.Start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// Addr is the server's host:port.
func (s *Server) Addr() string { return s.server.Addr() }

// URL returns a connection string for a schema of the server. addr is Addr, or a proxy's.
func (s *Server) URL(addr, schema string) string {
	return fmt.Sprintf("postgres://onceguard@%s/postgres?sslmode=disable&search_path=%s", addr, schema)
}

// Crash ends the server at once, as a power failure would, except that the kernel still writes its buffers. All
// connections break.
func (s *Server) Crash() error { return s.server.Stop(immediate) }

// Stop shuts the server down: it rolls back open transactions.
func (s *Server) Stop() error { return s.server.Stop(syscall.SIGINT) }

// Restart starts a server that has stopped or crashed, on the same port, and returns when it has recovered and accepts
// connections.
func (s *Server) Restart() error { return s.server.Restart() }

// Close shuts the server down, and removes what it has stored.
func (s *Server) Close() error {
	if err := s.Stop(); err != nil {
		return err
	}
	return os.RemoveAll(s.server.Dir)
}
