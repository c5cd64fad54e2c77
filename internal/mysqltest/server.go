// Package mysqltest starts real servers of MariaDB or MySQL for tests and benchmarks. It imports no driver, so that it can
// be part of this module.
//
// The server is the first mariadbd or mysqld on the PATH, or Debian's. Both refuse to run as root. A process that runs as
// root starts it as mysql or nobody.
package mysqltest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/onceguard/onceguard/internal/child"
)

// Server is a server on this machine, with its defaults except for 300 connections. It listens only on the loopback
// address. Its user root has no password. Its methods must not be called concurrently.
type Server struct {
	child.Server
	program string // that runs it
	base    string // the directory above the program's
	maria   bool   // it is MariaDB
	version [2]int
}

// Find returns the path of the server's program, or an error if none is installed.
func Find() (string, error) {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin") {
		for _, name := range []string{"mariadbd", "mysqld"} {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(path) {
				return filepath.EvalSymlinks(path)
			}
		}
	}
	return "", errors.New("neither MariaDB nor MySQL is installed")
}

// Start makes an empty data directory and runs a server on it. It leaves nothing behind if it fails.
func Start() (_ *Server, err error) {
	s := &Server{}
	if s.program, err = Find(); err != nil {
		return nil, err
	}
	s.base = filepath.Dir(filepath.Dir(s.program))
	version, err := exec.Command(s.program, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", s.program, err)
	}
	s.maria = strings.Contains(string(version), "MariaDB")
	if m := regexp.MustCompile(`Ver (\d+)\.(\d+)`).FindSubmatch(version); m != nil {
		s.version[0], _ = strconv.Atoi(string(m[1]))
		s.version[1], _ = strconv.Atoi(string(m[2]))
	}
	s.Server = child.Server{Name: s.program, Command: s.run, OnCrash: syscall.SIGKILL, OnStop: syscall.SIGTERM}
	s.Ready = func(int) bool { return strings.Contains(s.Log(), "ready for connections") }
	return s, s.StartNew("mysql", s.initialize)
}

func (s *Server) data() string { return filepath.Join(s.Dir, "data") }

// initialize returns the command that makes the server's own tables. MariaDB has a script for that, which needs more
// programs.
func (s *Server) initialize() (*exec.Cmd, error) {
	err := os.Mkdir(s.data(), 0o700)
	if err = errors.Join(err, s.As.Own(s.data())); err != nil || !s.maria {
		return s.command("--initialize-insecure"), err
	}
	cmd := s.command("--bootstrap")
	cmd.Stdin, err = s.systemTables()
	return cmd, err
}

// systemTables returns the statements that make the system tables of MariaDB.
func (s *Server) systemTables() (io.Reader, error) {
	statements := "create database mysql;\nuse mysql;\n"
	for _, name := range []string{"system_tables", "system_tables_data"} {
		files, err := filepath.Glob(filepath.Join(s.base, "share", "m*", "m*_"+name+".sql")) // mysql or mariadb
		if err != nil || len(files) != 1 {
			return nil, fmt.Errorf("there is no %s.sql: %q, %w", name, files, err)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			return nil, err
		}
		statements += string(text)
	}
	return strings.NewReader(statements), nil
}

func (s *Server) command(args ...string) *exec.Cmd {
	args = append([]string{"--no-defaults", "--datadir=" + s.data(), "--basedir=" + s.base, "--tmpdir=" + s.Dir}, args...)
	return exec.Command(s.program, args...)
}

func (s *Server) run() *exec.Cmd {
	cmd := s.command("--port="+strconv.Itoa(s.Port), "--bind-address=127.0.0.1", "--max-connections=300",
		"--socket="+filepath.Join(s.Dir, "socket"), "--pid-file="+filepath.Join(s.Dir, "pid"))
	if !s.maria {
		cmd.Args = append(cmd.Args, "--mysqlx=OFF", "--secure-file-priv=NULL")
	}
	return cmd
}

// IsMariaDB reports whether the server is MariaDB, and not MySQL.
func (s *Server) IsMariaDB() bool { return s.maria }

// KnowsSkipLocked reports whether the server is so new that it knows SELECT ... FOR UPDATE SKIP LOCKED.
func (s *Server) KnowsSkipLocked() bool {
	if s.maria {
		return slices.Compare(s.version[:], []int{10, 6}) >= 0
	}
	return s.version[0] >= 8
}

// DSN returns a connection string, as the driver go-sql-driver/mysql takes it, for a database of the server. addr is Addr,
// or a proxy's.
func (s *Server) DSN(addr, database string) string {
	return fmt.Sprintf("root@tcp(%s)/%s", addr, database)
}
