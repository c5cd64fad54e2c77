package sqljournal_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceguard/onceguard/sqljournal"
)

// committing is a database with one transaction, during whose COMMIT the caller's context ends.
type committing struct {
	driver.Conn
	endCaller context.CancelFunc
	begun     context.Context // of the transaction
	err       error           // that begun has then
}

func (c *committing) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (*committing) Driver() driver.Driver                          { return nil }
func (*committing) Close() error                                   { return nil }
func (*committing) Rollback() error                                { return nil }

func (c *committing) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	if c.begun != nil {
		return nil, errors.New("no other transaction")
	}
	c.begun = ctx
	return c, nil
}

func (*committing) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), nil
}

func (c *committing) Commit() error {
	c.endCaller()
	synctest.Wait()
	c.err = c.begun.Err()
	return nil
}

// A server that waits for its standby would stop waiting, and show a transaction that a failover may lose.
//
// fault: the caller's context ends while COMMIT is under way. Expected: that of the COMMIT goes on.
func TestContextOfCommitGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &committing{}
		db := sql.OpenDB(c)
		defer db.Close()
		j := sqljournal.Transactional(db, namespace)
		_, ctx := protected(j, newRun(time.Hour), "response")
		ctx, c.endCaller = context.WithCancel(ctx)
		if err := j.InTx(ctx, nil, func(*sql.Tx) error { return nil }); err != nil || c.err != nil {
			t.Errorf("InTx: %v; the context of COMMIT: %v", err, c.err)
		}
	})
}
