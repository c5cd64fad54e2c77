package sqljournal

import (
	"context"
	"errors"

	"github.com/onceguard/onceguard/journal"
)

// errNeverComplete is the error of an fn that returned nil and did not call complete.
var errNeverComplete = errors.New("sqljournal: the transaction ended without the journal's record")

// Around is [Journal.InTx] for code that owns its transaction, such as pgx, sqlc, gorm or ent. fn runs that transaction
// in the journal's database, and calls complete last in it, right before the commit. fn must return nil if and only if
// its commit has succeeded. If complete fails, fn rolls back and returns that error.
//
//	err := journal.Around(ctx, func(complete func(sqljournal.Execer) error) error {
//		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//			if err := insertPayment(ctx, tx, order); err != nil {
//				return err
//			}
//			if err := writeJSON(w, http.StatusCreated, order); err != nil {
//				return err
//			}
//			return complete(sqljournal.Pgx(tx))
//		})
//	})
//
// In a transaction of gorm, the Execer is tx.Statement.ConnPool.
//
// fn may run its transaction again after a serialization failure, for example. The response then starts as it was
// before Around, and each attempt writes its own, right before it calls complete. What is written after complete is
// discarded if the commit succeeds.
//
// In MySQL a deadlock that fn ignores, or DDL, ends the transaction, and what follows is committed statement by statement. Around
// finds that out in complete, which needs autocommit to be on in the connections of fn, and fails otherwise. No later attempt
// succeeds. If fn fails before complete, what is committed stays, and a retry may run.
//
// If fn's transaction of database/sql has ended before complete is called, the effect is unknown as well, in every database.
//
// How long a COMMIT may take is up to fn: the 3 s of InTx begin when fn has returned its error.
//
// Around's errors are those of InTx, one that says so if fn returned nil and never called complete, and
// [journal.ErrAnswered] if its last attempt wrote a response and did not call complete. What fn has committed then is not protected. An attempt that
// does neither looks like the end of the one before: Around returns nil, and the earlier attempt's response is sent. In
// a run without a journal, and outside of a run, complete does nothing.
func (j *Journal) Around(ctx context.Context, fn func(complete func(Execer) error) error) error {
	_, ok, err := j.runHere(ctx)
	switch {
	case err != nil:
		return err
	case !ok:
		return fn(func(Execer) error { return nil })
	}
	errComplete := errNeverComplete // until complete is called
	return journal.Transact(ctx,
		func(seal func() (journal.Commit, error)) error {
			err := fn(func(e Execer) error {
				if errors.Is(errComplete, errEnded) { // a later attempt does not undo what the ended one may have committed
					return errors.Join(errComplete, j.dialect.preventCommit(ctx, e))
				}
				commit, err := seal()
				if err == nil {
					err = j.checkAndComplete(ctx, e, commit)
				}
				errComplete = err
				return err
			})
			if err != nil {
				return err
			}
			return errComplete
		},
		func(run journal.Run, sealed bool) (journal.Entry, error) {
			if errors.Is(errComplete, errEnded) {
				return journal.Entry{}, errEnded
			}
			commitSent := sealed // it may have been: only fn knows
			return j.findEntry(ctx, run, commitSent)
		})
}

// checkAndComplete is complete for a transaction that others have begun. e may be none: its statements would be committed
// one by one. After an error a COMMIT commits nothing.
func (j *Journal) checkAndComplete(ctx context.Context, e Execer, c journal.Commit) error {
	err := j.dialect.openBeside(ctx, e)
	if err == nil {
		err = j.dialect.checkOpen(ctx, e, c.Run, nil)
	}
	if err == nil {
		err = j.dialect.complete(ctx, e, c)
	}
	if err != nil {
		err = errors.Join(err, j.dialect.preventCommit(ctx, e))
	}
	return j.endedByHandler(ctx, c.Run, err)
}
