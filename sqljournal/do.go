package sqljournal

import (
	"context"
	"database/sql"
	"errors"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/once"
)

// Do is [once.Do] for a function whose effect is in the journal's database: it runs f in a transaction, and commits the
// effect, the value that f returns and the record of the run together. So the effect happens exactly once for each key,
// however often a queue delivers the message, and even if Redis forgets everything. g must have this package's journal
// ([once.WithJournal]). opts are those of [sql.DB.BeginTx]. f must not commit or roll back by itself.
//
//	receipt, replayed, err := sqljournal.Do(ctx, guard, key, nil, func(ctx context.Context, tx *sql.Tx) (Receipt, error) {
//		return insertPayment(ctx, tx, order)
//	})
//
// If err is nil, the transaction of this call or, with replayed, of an earlier one is committed, even if the reply to
// COMMIT was lost. If f returns an error, the transaction is rolled back. The error's mark, such as [once.Final], then
// decides about the key as in once.Do.
//
// With a transactional journal an error of the database, for example that of a COMMIT, frees the key in every mode, also
// with [once.WithAtMostOnce], and the next call runs. So does a serialization failure or a deadlock that f returns
// unmarked. WithAtMostOnce says what any other error of f without a mark does, because f may have had an effect elsewhere.
// If BEGIN fails, f is not called, and the next call runs with an intent journal, too.
//
// The other errors are those of once.Do. If it is still unknown after 3 s whether the transaction was committed, the
// error is [once.ErrNotKnownYet], and a later call finds out. A value that is longer than 1 MiB is
// [journal.ErrTooLong], and nothing is committed. If g has no journal of this package, the error says so, and
// f is not called.
//
// The transaction is rolled back if the context of f ends before the commit: see once.Do. Do may be called
// concurrently.
func Do[T any](
	ctx context.Context, g *once.Guard, key once.Key, opts *sql.TxOptions, f func(context.Context, *sql.Tx) (T, error),
) (v T, replayed bool, err error) {
	return once.Do(ctx, g, key, func(ctx context.Context) (v T, err error) {
		var none T
		run, of, _ := journal.FromContext(ctx)
		j, ok := of.(*Journal)
		if !ok {
			return none, once.NothingHappened(errOtherJournal)
		}
		t := recordingTx{journal: j, forRun: run, ctx: ctx, opts: opts}
		called, sealed := false, false
		err = once.Transact(ctx, func(seal func(any) (journal.Commit, error)) error {
			return t.run(func(tx *sql.Tx) (c journal.Commit, err error) {
				called = true
				if v, err = f(ctx, tx); err != nil {
					return journal.Commit{}, err
				}
				c, err = seal(v)
				sealed = err == nil
				return c, err
			})
		}, t.findEntry)
		switch {
		case err == nil:
			return v, nil
		case !called, sealed && !run.Intent: // the database has failed, and nothing is committed
			return none, once.NothingHappened(err)
		case !run.Intent && isConflict(err):
			return none, &conflict{err}
		}
		return none, err
	})
}

// conflict is an error of f with which the database asks for the transaction to be run again.
type conflict struct{ err error }

func (c *conflict) Error() string { return c.err.Error() }

// Unwrap returns f's error first, because its mark counts more.
func (c *conflict) Unwrap() []error { return []error{c.err, once.NothingHappened(errRunAgain)} }

var errRunAgain = errors.New("sqljournal: the transaction is to be run again")
