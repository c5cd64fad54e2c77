package sqljournal

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/journal"
)

// This file has what a journal does in the handler's transaction, and how it finds out whether that is still the one that was
// begun. In MySQL a deadlock ends it, DDL and a second BEGIN commit it. As InTx has turned autocommit off, statements that
// follow are another transaction, which is rolled back unless DDL commits it. In Around they may be committed one by one.

// errEnded means that a part of the handler's statements may be committed without the record.
var errEnded = errors.New("sqljournal: a statement in the transaction has ended it, so its effect is unknown")

// open executes the statement with which a transaction of the dialect begins.
func (s *dialect) open(ctx context.Context, e Execer) error {
	if s.opening == "" {
		return nil
	}
	_, err := e.ExecContext(ctx, s.opening)
	return err
}

// checkOpen returns cause, the error of the handler's part of a transaction, or the reason why it cannot be committed. If
// the transaction has ended, that is errEnded. checkOpen then stores a row without an outcome that belongs to no run, so that
// no retry of run may run until an operator removes the row. The row of an intent run stays as it is.
//
// If the handler returns a deadlock, everything is rolled back, also what followed another one that it had ignored. If DDL has
// committed a part before, that is not found: journal.md asks for none. A lock timeout does not count: by default it ends
// nothing, so the transaction has ended in another way.
func (s *dialect) checkOpen(ctx context.Context, e Execer, run journal.Run, cause error) error {
	if s.stillOpen == "" {
		return cause
	}
	_, err := e.ExecContext(ctx, s.stillOpen)
	switch number := mysqlNumber(cause); {
	case mysqlNumber(err) != mysqlNoSavepoint:
		return cmp.Or(cause, err)
	case number == mysqlDeadlock, number == mysqlRecordChanged:
		return cause
	}
	err = s.preventCommit(ctx, e)
	if err == nil {
		_, err = e.ExecContext(ctx, "unlock tables") // else a LOCK TABLES could forbid the INSERT
	}
	if err == nil {
		err = s.forbidRuns(ctx, e, run)
	}
	if err == nil {
		_, err = e.ExecContext(ctx, "commit")
	}
	return errors.Join(errEnded, cause, err)
}

// forbidRuns stores the row of checkOpen.
func (s *dialect) forbidRuns(ctx context.Context, e Execer, run journal.Run) error {
	_, err := s.exec(ctx, e, s.begin, run.Key, uuid.NewString(), joinNote(run.Note, nil), int64(0))
	if isDuplicate(err) {
		return nil
	}
	return err
}

// endedByHandler returns err or, if it means that the handler has ended the transaction by itself, errEnded. Nobody knows
// then whether that was a COMMIT, so no retry of run may run.
func (j *Journal) endedByHandler(ctx context.Context, run journal.Run, err error) error {
	if !errors.Is(err, sql.ErrTxDone) || ctx.Err() != nil { // the end of a context rolls back
		return err
	}
	return errors.Join(errEnded, err, j.dialect.forbidRuns(ctx, j.db, run))
}

// checkTx returns errEnded if e is a transaction of database/sql that a statement has ended: what e executes would be committed
// alone or, without autocommit, with whatever has followed. The savepoint that InTx has set at the beginning tells. One that is
// set now tells it only with autocommit.
func (s *dialect) checkTx(ctx context.Context, e Execer) error {
	if _, ok := e.(*sql.Tx); !ok || s.stillOpen == "" {
		return nil
	}
	_, err := e.ExecContext(ctx, s.stillOpen)
	if err == nil {
		return s.open(ctx, e) // for the next who asks
	}
	if mysqlNumber(err) == mysqlNoSavepoint {
		err = s.openBeside(ctx, e)
	}
	if err == nil {
		_, err = e.ExecContext(ctx, s.stillOpen)
	}
	if mysqlNumber(err) == mysqlNoSavepoint || errors.Is(err, errAutocommit) {
		err = errors.Join(errEnded, err)
	}
	return err
}

// errAutocommit means that a transaction cannot be told from one that has followed it, because the server does not commit
// statements outside of a transaction by themselves.
var errAutocommit = errors.New("sqljournal: autocommit is off in the connection of the transaction; it must be on")

// openBeside is open in a transaction that others have begun, at any time.
func (s *dialect) openBeside(ctx context.Context, e Execer) error {
	if s.autocommits != "" {
		if _, err := e.ExecContext(ctx, s.autocommits); mysqlNumber(err) == mysqlTwoRows {
			return errAutocommit
		} else if err != nil {
			return err
		}
	}
	return s.open(ctx, e)
}

// preventCommit makes a COMMIT of the transaction impossible after complete has failed in it.
func (s *dialect) preventCommit(ctx context.Context, e Execer) error {
	if s.abort == "" {
		return nil
	}
	_, err := e.ExecContext(ctx, s.abort)
	return err
}

// complete stores the record of a run in the transaction of e. It returns [ErrLost] if another run has the row. Then
// the transaction must not be committed.
func (s *dialect) complete(ctx context.Context, e Execer, c journal.Commit) error {
	n, err := s.store(ctx, e, c)
	if isDuplicate(err) {
		err = fmt.Errorf("%w: %w", ErrLost, err)
	}
	return expectOneRow("complete", n, err)
}

// store sends the statement that stores a commit's record. It returns how many rows it has changed: 1, or 0 if another run has
// the row. Begin has removed an expired one.
func (s *dialect) store(ctx context.Context, e Execer, c journal.Commit) (int64, error) {
	statement := s.insert
	if c.Run.Intent {
		statement = s.finish
	}
	return s.exec(ctx, e, statement, c.Run.Key, c.Run.Token, bytesOf(c.Record), s.units(c.Keep))
}
