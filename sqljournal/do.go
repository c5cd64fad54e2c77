package sqljournal

import (
	"context"
	"database/sql"

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
// decides about the key as in once.Do; with a transactional journal and without a mark, the next call runs. An error of
// the database has no mark, for example that of a COMMIT. If BEGIN fails, f is not called, and the next call runs.
//
// The other errors are those of once.Do. If it is still unknown after 3 s whether the transaction was committed, the
// error is [once.ErrNotKnownYet], and a later call finds out. A value that is longer than 1 MiB is
// [journal.ErrTooLong], and nothing is committed. If g has no journal of this package, the error is [ErrOtherJournal], and
// f is not called.
//
// The transaction is rolled back if the context of f ends before the commit: see once.Do. Do may be called
// concurrently.
func Do[T any](
	ctx context.Context, g *once.Guard, key once.Key, opts *sql.TxOptions, f func(context.Context, *sql.Tx) (T, error),
) (v T, replayed bool, err error) {
	return once.Do(ctx, g, key, func(ctx context.Context) (v T, err error) {
		var none T
		_, of, _ := journal.FromContext(ctx)
		j, ok := of.(*Journal)
		if !ok {
			return none, once.NothingHappened(ErrOtherJournal)
		}
		t := recordingTx{journal: j, ctx: ctx, opts: opts}
		called := false
		err = once.Transact(ctx, func(seal func(any) (journal.Commit, error)) error {
			return t.run(func(tx *sql.Tx) (c journal.Commit, err error) {
				called = true
				if v, err = f(ctx, tx); err != nil {
					return journal.Commit{}, err
				}
				return seal(v)
			})
		}, t.findOutcome)
		switch {
		case err == nil:
			return v, nil
		case !called:
			return none, once.NothingHappened(err)
		}
		return none, err
	})
}
