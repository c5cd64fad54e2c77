package dbtest

import (
	"testing"

	"github.com/onceguard/onceguard/internal/mysqltest"
	"github.com/onceguard/onceguard/internal/pgtest"
)

// Server is a server that a test may stop or crash.
type Server struct {
	process
	kind       Kind
	postgresql *pgtest.Server // nil if it is another
	isMariaDB  bool
	isTooOld   bool
}

// process is *pgtest.Server or *mysqltest.Server.
type process interface {
	Addr() string
	Crash() error
	Stop() error
	Restart() error
	Close() error
}

func startServer(kind Kind) (*Server, error) {
	if kind == KindMySQL {
		process, err := mysqltest.Start()
		if err != nil {
			return nil, err
		}
		return &Server{process: process, kind: kind, isMariaDB: process.IsMariaDB(), isTooOld: !process.KnowsSkipLocked()}, nil
	}
	process, err := pgtest.Start()
	if err != nil {
		return nil, err
	}
	return &Server{process: process, kind: kind, postgresql: process}, nil
}

// IsMariaDB reports whether the server is MariaDB, and not MySQL.
func (s *Server) IsMariaDB() bool { return s.isMariaDB }

// IsTooOld reports whether the server is so old that a journal does not work there.
func (s *Server) IsTooOld() bool { return s.isTooOld }

func (s *Server) skipIfTooOld(t testing.TB) {
	t.Helper()
	if s.isTooOld {
		t.Skip("left out: the server is too old for a journal")
	}
}

// Crash ends the server at once, as a power failure would, except that the kernel still writes its buffers. All
// connections break.
func (s *Server) Crash(t testing.TB) {
	t.Helper()
	if err := s.process.Crash(); err != nil {
		t.Fatalf("dbtest: %v", err)
	}
}

// Stop shuts the server down: it rolls back open transactions.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if err := s.process.Stop(); err != nil {
		t.Fatalf("dbtest: %v", err)
	}
}

// Restart starts a server that has stopped or crashed, on the same port, and returns when it has recovered and answers.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.process.Restart(); err != nil {
		t.Fatalf("dbtest: %v", err)
	}
}
