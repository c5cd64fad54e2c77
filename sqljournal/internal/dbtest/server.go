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

const tooOld = "left out: the server is too old for a journal"

// start starts the server if it is not running yet. If it is not installed, or too old, the test is left out. With CI=true a
// missing one fails the test.
func (s *Server) start(t testing.TB, anyVersion bool) *Server {
	t.Helper()
	_, err := pgtest.Find()
	if s.kind == KindMySQL {
		_, err = mysqltest.Find()
	}
	if err != nil && os.Getenv("CI") != "true" {
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
	if s.IsTooOld && !anyVersion {
		t.Skip(tooOld)
	}
	return s
}
