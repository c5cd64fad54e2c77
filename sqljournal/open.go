package sqljournal

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/journal"
)

// This file finds out whether the handler's transaction is still the one that was begun. In MySQL a deadlock ends it, DDL
// and a second BEGIN commit it. As InTx has turned autocommit off, statements that follow are another transaction, which is
// rolled back. In Around they may be committed one by one.

// errEnded means that a part of the handler's statements may be committed without the record.
var errEnded = errors.New("sqljournal: a statement in the transaction has ended it, so its effect is unknown")

// open executes the statement with which a transaction of the dialect begins.
func (j *Journal) open(ctx context.Context, e Execer) error {
	if j.dialect.opening == "" {
		return nil
	}
	_, err := e.ExecContext(ctx, j.dialect.opening)
	return err
}

// checkOpen returns cause, the error of the handler's part of a transaction, or the reason why it cannot be committed. If
// the transaction has ended, that is errEnded, and no retry of run may run: the row that checkOpen then stores has no
// outcome and belongs to no run, so that only an operator removes it. The row of an intent run stays as it is.
//
// After a deadlock that the handler returns, everything is rolled back, whatever it has done after another one that it has
// ignored. That DDL has committed a part before is not found: journal.md asks for none. A lock timeout is no such error: by
// default its transaction stays open, and then this one has ended in another way.
func (j *Journal) checkOpen(ctx context.Context, e Execer, run journal.Run, cause error) error {
	if j.dialect.stillOpen == "" {
		return cause
	}
	_, err := e.ExecContext(ctx, j.dialect.stillOpen)
	switch number := mysqlNumber(cause); {
	case mysqlNumber(err) != mysqlNoSavepoint && cause != nil:
		return cause
	case mysqlNumber(err) != mysqlNoSavepoint:
		return err
	case number == mysqlDeadlock, number == mysqlRecordChanged:
		return cause
	}
	err = j.abort(ctx, e)
	if err == nil {
		_, err = j.dialect.exec(ctx, e, j.dialect.begin, run.Key, uuid.NewString(), joinNote(run.Note, nil), int64(0))
	}
	if err == nil {
		_, err = e.ExecContext(ctx, "commit")
	}
	if isDuplicate(err) {
		err = nil
	}
	return fmt.Errorf("%w%w", errEnded, errors.Join(cause, err))
}

// abort makes a COMMIT of the transaction impossible after complete has failed in it.
func (j *Journal) abort(ctx context.Context, e Execer) error {
	if j.dialect.abort == "" {
		return nil
	}
	_, err := e.ExecContext(ctx, j.dialect.abort)
	return err
}
