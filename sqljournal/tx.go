package sqljournal

import (
	"context"
	"database/sql"
	"errors"

	"github.com/onceguard/onceguard/journal"
)

// errOtherJournal means that the run was begun in another journal than the one that InTx, Around or Note was called on.
// Nothing has happened. Use the journal that was given to middleware.WithJournal.
var errOtherJournal = errors.New("sqljournal: the run belongs to another journal")

// runHere returns the run that ctx belongs to. ok is false outside of a run, and in a run without a journal.
func (j *Journal) runHere(ctx context.Context) (run journal.Run, ok bool, err error) {
	run, of, ok := journal.FromContext(ctx)
	if ok && of != journal.Journal(j) {
		return journal.Run{}, false, errOtherJournal
	}
	return run, ok, nil
}

// InTx runs fn in a transaction of the journal's database, stores the run's response with it, and commits. opts are
// those of [sql.DB.BeginTx], with any isolation level. InTx calls fn at most once. fn must not commit or roll back by
// itself.
//
// If InTx returns nil, the transaction is committed, even if the reply to COMMIT was lost. Then the response is sent when the
// handler returns, and writing more is an error.
//
// After [journal.ErrAnswered] the handler should return; what it writes is discarded. The client gets another run's
// response, that of the transaction that InTx has committed in this run before or, if it is unknown 3 s after COMMIT was
// sent whether this transaction is committed, a 503. After any other error
// nothing has happened, and the response is as it was before InTx: the handler can answer, or call InTx again. Such an
// error is
//
//   - an error of fn or of the database,
//   - [journal.ErrNoResponse] or [journal.ErrTooLong]: the response cannot be stored,
//   - middleware.ErrCommitted: a byte of the response was sent already,
//   - an error because the run belongs to another journal.
//
// In MySQL a statement may end the transaction: a deadlock rolls it back, and DDL, which fn must not execute, commits it. If fn
// returns the error of a deadlock, nothing has happened. Otherwise the effect of fn is unknown, and retries get 409 until an
// operator or, in an intent journal, Sweep ends the row. Autocommit is off in fn: in a run, what follows a deadlock is rolled back.
//
// If fn has committed or rolled back by itself, the effect is unknown as well, in every database.
//
// If fn panics, the transaction is rolled back and the panic goes on.
//
// ctx must be the request's context, or one derived from it, because InTx finds the run by it. The transaction is
// rolled back if ctx ends before the commit. In a run without a journal, and outside of a run, InTx is just a
// transaction, which fails if a statement has ended it.
func (j *Journal) InTx(ctx context.Context, opts *sql.TxOptions, fn func(*sql.Tx) error) error {
	run, ok, err := j.runHere(ctx)
	switch {
	case err != nil:
		return err
	case !ok:
		_, err := j.transaction(ctx, opts, func(tx *sql.Tx) error {
			if err := fn(tx); err != nil || opts != nil && opts.ReadOnly {
				return err
			}
			return j.dialect.checkTx(ctx, tx)
		}, commitNow)
		return err
	}
	t := recordingTx{journal: j, forRun: run, ctx: ctx, opts: opts}
	return journal.Transact(ctx, func(seal func() (journal.Commit, error)) error {
		return t.run(func(tx *sql.Tx) (journal.Commit, error) {
			if err := fn(tx); err != nil {
				return journal.Commit{}, err
			}
			return seal()
		})
	}, t.findEntry)
}
