package sqljournal

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/onceguard/onceguard/journal"
)

// ErrOtherJournal means that the run was begun in another journal than the one that InTx, Around or Note was called on.
// Nothing has happened. Use the journal that was given to middleware.WithJournal.
var ErrOtherJournal = errors.New("sqljournal: the run belongs to another journal")

// runHere returns the run that ctx belongs to. ok is false outside of a run, and in a run without a journal.
func (j *Journal) runHere(ctx context.Context) (run journal.Run, ok bool, err error) {
	run, of, ok := journal.FromContext(ctx)
	if ok && of != journal.Journal(j) {
		return journal.Run{}, false, ErrOtherJournal
	}
	return run, ok, nil
}

// InTx runs fn in a transaction of the journal's database, stores the run's response with it, and commits. opts are
// those of [sql.DB.BeginTx], with any isolation level. fn must not commit or roll back by itself.
//
// InTx returns nil if and only if the transaction is committed, even if the reply to COMMIT was lost. Then the response
// is sent when the handler returns, and writing more is an error.
//
// After [journal.ErrAnswered] the handler should return; what it writes is discarded. The client gets another run's
// response or, if it is unknown 3 s after COMMIT was sent whether this transaction is committed, a 503. After any other error
// nothing has happened, and the response is as it was before InTx: the handler can answer, or call InTx again. Such an
// error is
//
//   - an error of fn or of the database,
//   - [journal.ErrNoResponse], [journal.ErrTooLong] or [journal.ErrBroken]: the response cannot be stored,
//   - middleware.ErrCommitted: a byte of the response was sent already,
//   - [journal.ErrTwice]: InTx has committed before in this run, and this transaction did not begin,
//   - [ErrOtherJournal].
//
// In MySQL a statement may end the transaction: a deadlock rolls it back, and DDL, which fn must not execute, commits it. If fn
// returns the error of a deadlock, nothing has happened. Otherwise the effect of fn is unknown, and retries get 409 until an
// operator or, in an intent journal, Sweep ends the row. Autocommit is off in fn, so that what follows a deadlock is rolled back.
//
// If fn panics, the transaction is rolled back and the panic goes on.
//
// ctx must be the request's context, or one derived from it, because InTx finds the run by it. The transaction is
// rolled back if ctx ends before the commit. In a run without a journal, and outside of a run, InTx is just a
// transaction.
func (j *Journal) InTx(ctx context.Context, opts *sql.TxOptions, fn func(*sql.Tx) error) error {
	run, ok, err := j.runHere(ctx)
	switch {
	case err != nil:
		return err
	case !ok:
		_, err := j.transaction(ctx, opts, fn, commitNow)
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
	}, t.findOutcome)
}

// transaction runs fn and then commit in a transaction. commit ends it, and then calls release. commitSent is true if a
// COMMIT may have been sent.
func (j *Journal) transaction(ctx context.Context, opts *sql.TxOptions, fn func(*sql.Tx) error,
	commit func(tx *sql.Tx, release func(endErr error)) error,
) (commitSent bool, err error) {
	tx, release, err := j.beginTx(ctx, opts)
	if err != nil {
		return false, err
	}
	defer func() {
		if !commitSent { // after a panic or a Goexit, too
			release(tx.Rollback())
		}
	}()
	if opts == nil || !opts.ReadOnly {
		if err := j.open(ctx, tx); err != nil {
			return false, err
		}
	}
	if err := fn(tx); err != nil {
		return false, err
	}
	commitSent = true
	return commitSent, commit(tx, release)
}

func commitNow(tx *sql.Tx, release func(error)) error {
	err := tx.Commit()
	release(err)
	return err
}

// beginTx begins a transaction. release gives its connection back, and must be called with the error of Commit or Rollback.
func (j *Journal) beginTx(ctx context.Context, opts *sql.TxOptions) (tx *sql.Tx, release func(endErr error), err error) {
	if j.dialect.autocommitOff == "" || opts != nil && opts.ReadOnly {
		tx, err = j.db.BeginTx(ctx, opts)
		return tx, func(error) {}, err
	}
	conn, err := j.db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	release = func(endErr error) { j.giveBack(ctx, conn, endErr) }
	if tx, err = conn.BeginTx(ctx, opts); err != nil {
		release(err)
		return nil, nil, err
	}
	if _, err = tx.ExecContext(ctx, j.dialect.autocommitOff); err != nil {
		release(tx.Rollback())
		return nil, nil, err
	}
	return tx, release, nil
}

// giveBack gives back the connection of a transaction that has ended with an error or without. With any error the connection
// is closed: it may be without autocommit, or the transaction may still be open, which autocommit would commit. The closing
// waits until the pool itself has rolled the transaction back, on a silent network for a long time.
func (j *Journal) giveBack(ctx context.Context, conn *sql.Conn, err error) {
	if err == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), j.probeTime)
		defer cancel()
		_, err = conn.ExecContext(ctx, j.dialect.autocommitOn)
	}
	if err != nil {
		go func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }()
		return
	}
	_ = conn.Close()
}

// rollBack ends a transaction that must not be committed. An error would mean that it has already ended, or that its
// connection is broken. Then the server rolls it back.
func rollBack(tx *sql.Tx) { _ = tx.Rollback() }
