package child_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/onceguard/onceguard/internal/mysqltest"
	"github.com/onceguard/onceguard/internal/pgtest"
)

// server is a database server for tests.
type server interface {
	Addr() string
	Crash() error
	Restart() error
	Close() error
}

// launch starts a server. find returns an error if this machine has none.
type launch struct {
	find  func() error
	start func() (server, error)
}

var launches = map[string]launch{
	"PostgreSQL": {
		func() error { _, err := pgtest.Find(); return err },
		func() (server, error) { return pgtest.Start() },
	},
	"MySQL": {
		func() error { _, err := mysqltest.Find(); return err },
		func() (server, error) { return mysqltest.Start() },
	},
}

// each runs test with each kind of server. Without one the test is skipped, or fails if CI=true.
func each(t *testing.T, test func(*testing.T, launch)) {
	for name, l := range launches {
		t.Run(name, func(t *testing.T) {
			if err := l.find(); err != nil && os.Getenv("CI") != "true" {
				t.Skip(err)
			}
			test(t, l)
		})
	}
}

// listening reports whether a connection to the server is accepted.
func listening(s server) bool {
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		return false
	}
	return c.Close() == nil
}

func TestServer(t *testing.T) {
	each(t, func(t *testing.T, l launch) {
		temp, err := os.MkdirTemp("", "child-") // TempDir's parent is closed to other accounts
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(temp) })
		if err := os.Chmod(temp, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("TMPDIR", temp)
		s, err := l.start()
		if err != nil {
			t.Fatal(err)
		}
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
	})
}

func TestServerThatCannotStartLeavesNothing(t *testing.T) {
	each(t, func(t *testing.T, l launch) {
		t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
		if _, err := l.start(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v, want %v", err, fs.ErrNotExist)
		}
	})
}
