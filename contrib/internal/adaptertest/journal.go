package adaptertest

import (
	"context"
	"errors"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// Journal is a transactional Journal whose first transactions fail.
type Journal struct{ Failures int }

// Namespace returns that of the Locker of [Locker].
func (*Journal) Namespace() string { return "test" }

func (*Journal) Begin(context.Context, middleware.JournalRun) (middleware.JournalEntry, error) {
	return middleware.JournalEntry{}, nil
}

func (*Journal) Look(context.Context, string) (middleware.JournalEntry, error) {
	return middleware.JournalEntry{}, nil
}

func (*Journal) End(_ context.Context, run middleware.JournalRun, record []byte, keep time.Duration) (middleware.JournalEntry, error) {
	if record == nil {
		return middleware.JournalEntry{}, nil
	}
	return middleware.JournalEntry{State: middleware.Done, Token: run.Token, Record: record, Left: keep}, nil
}

// ErrRolledBack is the error of a transaction that fails.
var ErrRolledBack = errors.New("the transaction was rolled back")

// InTx runs fn in a transaction, as sqljournal's InTx does.
func (j *Journal) InTx(ctx context.Context, fn func()) error {
	return middleware.FromContext(ctx).Transact(func(seal func() (middleware.Commit, error)) error {
		fn()
		_, err := seal()
		if j.Failures--; err == nil && j.Failures >= 0 {
			err = ErrRolledBack
		}
		return err
	}, func(middleware.JournalRun, bool) (middleware.JournalEntry, error) {
		return middleware.JournalEntry{}, nil
	})
}
