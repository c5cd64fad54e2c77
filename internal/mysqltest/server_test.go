package mysqltest_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/onceguard/onceguard/internal/mysqltest"
)

// start returns a server and the directory in which its own one is. Without MariaDB and MySQL the test is skipped, or fails if
// CI=true.
func start(t *testing.T) (*mysqltest.Server, string) {
	t.Helper()
	if _, err := mysqltest.Find(); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	temp, err := os.MkdirTemp("", "mysqltest-") // TempDir's parent is closed to other accounts
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	if err := os.Chmod(temp, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temp)
	s, err := mysqltest.Start()
	if err != nil {
		t.Fatal(err)
	}
	return s, temp
}

// listening reports whether a connection to the server is accepted.
func listening(s *mysqltest.Server) bool {
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		return false
	}
	return c.Close() == nil
}

func TestServer(t *testing.T) {
	s, temp := start(t)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if listening(s) {
			t.Error("a closed server listens")
		}
		if left, err := filepath.Glob(filepath.Join(temp, "*")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %q, error %v", left, err)
		}
	}()
	if !listening(s) {
		t.Fatal("a new server does not listen")
	}
	addr := s.Addr()
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	if listening(s) {
		t.Error("a crashed server listens")
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if !listening(s) || s.Addr() != addr {
		t.Errorf("a restarted server does not listen on %s", addr)
	}
}

func TestServerThatCannotStartLeavesNothing(t *testing.T) {
	if _, err := mysqltest.Find(); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	if _, err := mysqltest.Start(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want %v", err, fs.ErrNotExist)
	}
}
