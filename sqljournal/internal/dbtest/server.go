package dbtest

import (
	"testing"

	"github.com/onceguard/onceguard/internal/pgtest"
)

// Server is a PostgreSQL server that a test may stop or crash.
type Server struct{ *pgtest.Server }

// Crash ends the server at once, as a power failure would, except that the kernel still writes its buffers. All
// connections break.
func (s *Server) Crash(t testing.TB) {
	t.Helper()
	if err := s.Server.Crash(); err != nil {
		t.Fatalf("dbtest: %v", err)
	}
}

// Stop shuts the server down: it rolls back open transactions.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if err := s.Server.Stop(); err != nil {
		t.Fatalf("dbtest: %v", err)
	}
}

// Restart starts a server that has stopped or crashed, on the same port, and returns when it has recovered and answers.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.Server.Restart(); err != nil {
		t.Fatalf("dbtest: %v", err)
	}
}
