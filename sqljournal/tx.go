package sqljournal

import (
	"context"
	"database/sql"
	"errors"

	"github.com/onceguard/onceguard/middleware"
)

// execution is what this package needs of a [middleware.Execution], and describes.
type execution interface {
	Journaled() (run middleware.JournalRun, of middleware.Journal, ok bool)
	Transact(
		do func(seal func() (middleware.Commit, error)) error,
		truth func(run middleware.JournalRun, sealed bool) (middleware.JournalEntry, error),
	) error
}

// executionOf returns the run that ctx belongs to, or nil outside of a protected one.
func executionOf(ctx context.Context) execution {
	if e := middleware.FromContext(ctx); e != nil {
		return e
	}
	return nil
}

// ErrOtherJournal means that the run was begun in another journal than the one that InTx, Around or Note was called on.
// Nothing has happened. The journal given to [middleware.WithJournal] is the one to call.
var ErrOtherJournal = errors.New("sqljournal: the run belongs to another journal")

// executionHere returns the run that ctx belongs to, and nil if that has no journal.
func (j *Journal) executionHere(ctx context.Context) (execution, error) {
	x := j.executionOf(ctx)
	if x == nil {
		return nil, nil
	}
	switch _, of, ok := x.Journaled(); {
	case !ok:
		return nil, nil
	case of != middleware.Journal(j):
		return nil, ErrOtherJournal
	}
	return x, nil
}

// InTx runs fn in a transaction of the journal's database, stores the run's response with it, and commits. Options as for
// [sql.DB.BeginTx]; every isolation level will do. fn must not commit or roll back by itself.
//
// InTx returns nil exactly if the transaction is committed, also when the reply to COMMIT was lost. The response then goes
// out when the handler returns, and writing more is an error.
//
// After [middleware.ErrAnswered] the handler should return; what it writes is discarded. The client gets another run's
// response or, if it is still unknown after 3 s whether this transaction was committed, a 503. After any other error nothing
// has happened and the response is as it was before InTx: the handler can answer, or call InTx again. Such an error is
//
//   - what fn returned, or what the database said,
//   - [middleware.ErrNoResponse], [middleware.ErrTooLong] or [middleware.ErrBroken] for a response that cannot be stored,
//   - [middleware.ErrCommitted] if a byte of the response has left already,
//   - [ErrOtherJournal], or [middleware.ErrTwice] if InTx has succeeded before in this run; then that transaction is committed, and this one
//     did not begin.
//
// If fn panics, the transaction is rolled back and the panic goes on.
//
// ctx must be the request's context, or one made of it: the run is found by it. It is also the transaction's, which is
// rolled back when ctx ends before the commit. In a run without a journal, and outside of a run, InTx is just a transaction.
func (j *Journal) InTx(ctx context.Context, opts *sql.TxOptions, fn func(*sql.Tx) error) error {
	x, err := j.executionHere(ctx)
	switch {
	case err != nil:
		return err
	case x == nil:
		_, err := j.transaction(ctx, opts, fn)
		return err
	}
	sent := false
	return x.Transact(
		func(seal func() (middleware.Commit, error)) (err error) {
			sent, err = j.transaction(ctx, opts, func(tx *sql.Tx) error {
				if err := fn(tx); err != nil {
					return err
				}
				commit, err := seal()
				if err != nil {
					return err
				}
				return j.complete(ctx, tx, commit)
			})
			return err
		},
		func(run middleware.JournalRun, _ bool) (middleware.JournalEntry, error) {
			return j.truth(ctx, run, sent)
		})
}

// transaction runs fn in a transaction. It reports whether a COMMIT may have been sent.
func (j *Journal) transaction(ctx context.Context, opts *sql.TxOptions, fn func(*sql.Tx) error) (sent bool, err error) {
	tx, err := j.db.BeginTx(ctx, opts)
	if err != nil {
		return false, err
	}
	defer func() {
		if !sent { // after a panic or a Goexit, too
			rollBack(tx)
		}
	}()
	if opts == nil || !opts.ReadOnly {
		if err := j.takeWriteLock(ctx, tx); err != nil {
			return false, err
		}
	}
	if err := fn(tx); err != nil {
		return false, err
	}
	sent = true
	return sent, tx.Commit()
}

// takeWriteLock makes a transaction the one that writes, where there can be only one.
func (j *Journal) takeWriteLock(ctx context.Context, tx *sql.Tx) error {
	if j.dialect.writeLock == "" {
		return nil
	}
	_, err := tx.ExecContext(ctx, j.dialect.writeLock)
	return err
}

// rollBack ends a transaction that must not be committed. An error would mean that it has ended already, or that its
// connection is broken: then the server rolls it back.
func rollBack(tx *sql.Tx) { _ = tx.Rollback() }

// Around is [Journal.InTx] for code that owns its transaction, such as pgx, sqlc, gorm or ent. fn runs that transaction in
// the journal's database, and calls complete last in it, right before the commit. It must return nil exactly if its
// commit has succeeded. If complete fails, fn rolls back and returns that error.
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
// Around's errors are those of InTx. In addition, [middleware.ErrUncommitted] says that fn returned nil without having
// called complete: what it has committed is not protected. In a run without a journal, and outside of a run, complete does nothing.
func (j *Journal) Around(ctx context.Context, fn func(complete func(Execer) error) error) error {
	x, err := j.executionHere(ctx)
	switch {
	case err != nil:
		return err
	case x == nil:
		return fn(func(Execer) error { return nil })
	}
	return x.Transact(
		func(seal func() (middleware.Commit, error)) error {
			completed := middleware.ErrUncommitted
			err := fn(func(e Execer) error {
				commit, err := seal()
				if err == nil {
					err = j.complete(ctx, e, commit)
				}
				completed = err
				return err
			})
			if err == nil {
				err = completed
			}
			return err
		},
		func(run middleware.JournalRun, sealed bool) (middleware.JournalEntry, error) {
			return j.truth(ctx, run, sealed) // only fn knows whether a COMMIT was sent
		})
}
