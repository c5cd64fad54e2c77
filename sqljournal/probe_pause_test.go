package sqljournal_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceguard/onceguard/sqljournal"
)

// badServer accepts connections, whose first transaction fails as a broken connection does.
type badServer struct {
	driver.Conn
	opened atomic.Int64
}

func (s *badServer) Connect(context.Context) (driver.Conn, error) { s.opened.Add(1); return s, nil }
func (s *badServer) Driver() driver.Driver                        { return nil }
func (s *badServer) Close() error                                 { return nil }

func (s *badServer) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return nil, driver.ErrBadConn
}

// Drivers say that a connection is bad also if the server refuses each statement, for example as it is read-only. Expected: only
// as many tries follow each other at once as the pool had idle connections, which may be from before a restart.
//
// fault: the probe of a lost COMMIT on a server that became read-only, with rejectReadOnly of the driver for MySQL
func TestProbePauses(t *testing.T) {
	t.Parallel()
	const idle = 5
	server := &badServer{}
	db := sql.OpenDB(server)
	defer db.Close()
	db.SetMaxIdleConns(idle)
	var conns []*sql.Conn
	for range idle {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	j := sqljournal.Transactional(db, namespace)
	const tries = 4
	sqljournal.SetProbeTime(j, tries*50*time.Millisecond)
	if _, err := j.FindEntry(t.Context(), newRun(time.Hour), true); err == nil {
		t.Error("got no error")
	}
	if n := server.opened.Load(); n < idle || n > idle+2*tries {
		t.Errorf("%d connections, want at most %d", n, idle+2*tries)
	}
}
