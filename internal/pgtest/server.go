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
type Server struct{ child.Server }

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
	s := &Server{child.Server{Name: "PostgreSQL", OnCrash: immediate, OnStop: syscall.SIGINT}}
	data := func() string { return filepath.Join(s.Dir, "data") }
	s.Command = func() *exec.Cmd {
		return exec.Command(filepath.Join(bin, "postgres"), "-D", data(), "-p", strconv.Itoa(s.Port),
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=300")
	}
	// Ready reads the file that pg_ctl reads too: the first line is the server's process, the eighth its state. So another
	// server on the port does not count.
	s.Ready = func(pid int) bool {
		text, err := os.ReadFile(filepath.Join(data(), "postmaster.pid"))
		lines := strings.Split(string(text), "\n")
		return err == nil && len(lines) > 7 && lines[0] == strconv.Itoa(pid) && strings.TrimSpace(lines[7]) == "ready"
	}
	return s, s.StartNew("postgres", func() (*exec.Cmd, error) {
		return exec.Command(filepath.Join(bin, "initdb"), "--pgdata", data(), "--auth", "trust",
			"--username", "onceguard", "--encoding", "UTF8", "--no-locale", "--no-sync"), nil
	})
}

// URL returns a connection string for a schema of the server. addr is Addr, or a proxy's.
func (s *Server) URL(addr, schema string) string {
	return fmt.Sprintf("postgres://onceguard@%s/postgres?sslmode=disable&search_path=%s", addr, schema)
}
