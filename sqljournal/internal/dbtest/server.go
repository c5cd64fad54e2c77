package dbtest

import (
	"os"
	"sync"
	"testing"

	"github.com/onceguard/onceguard/internal/mysqltest"
	"github.com/onceguard/onceguard/internal/pgtest"
)

// Server is a server that a test may stop or crash. It is started when a test first needs it.
type Server struct {
	process
	IsMariaDB bool // and not MySQL
	IsTooOld  bool // for a journal

	kind Kind
	url  func(addr, schema string) string // of PostgreSQL
	once sync.Once
	err  error // of the start
}

// process is *pgtest.Server or *mysqltest.Server.
type process interface {
	Addr() string
	Crash() error   // at once, as a power failure would, except that the kernel still writes its buffers
	Stop() error    // in order: it rolls back open transactions
	Restart() error // on the same port, and returns when the server has recovered and answers
	Close() error
}

// shared are the servers of this test binary.
var shared = map[Kind]*Server{KindPostgreSQL: {kind: KindPostgreSQL}, KindMySQL: {kind: KindMySQL}}

// missing returns an error if a kind of server is not installed, and its tests are left out. With CI=true they fail.
func missing(kind Kind) (err error) {
	if os.Getenv("CI") == "true" {
		return nil
	}
	if kind == KindMySQL {
		_, err = mysqltest.Find()
	} else {
		_, err = pgtest.Find()
	}
	return err
}

func (s *Server) start(t testing.TB) *Server {
	t.Helper()
	if err := missing(s.kind); err != nil {
		t.Skipf("left out: %v", err)
	}
	s.once.Do(func() {
		if s.kind == KindMySQL {
			var p *mysqltest.Server
			if p, s.err = mysqltest.Start(); s.err == nil {
				s.process, s.IsMariaDB, s.IsTooOld = p, p.IsMariaDB(), !p.KnowsSkipLocked()
			}
			return
		}
		var p *pgtest.Server
		if p, s.err = pgtest.Start(); s.err == nil {
			s.process, s.url = p, p.URL
		}
	})
	must(t, s.err)
	return s
}

func (s *Server) skipIfTooOld(t testing.TB) *Server {
	t.Helper()
	if s.IsTooOld {
		t.Skip("left out: the server is too old for a journal")
	}
	return s
}
