package adaptertest

import (
	"context"
	"errors"
	"time"

	"github.com/onceguard/onceguard/journal"
)

// Journal is a transactional Journal whose first transactions fail.
type Journal struct{ Failures int }

// Namespace returns the namespace of the tests' Lockers.
func (*Journal) Namespace() string { return "test" }

func (*Journal) IsIntent() bool { return false }

func (*Journal) Begin(context.Context, journal.Run) (journal.Entry, error) {
	return journal.Entry{}, nil
}

func (*Journal) Look(context.Context, string) (journal.Entry, error) {
	return journal.Entry{}, nil
}

func (*Journal) End(_ context.Context, run journal.Run, record []byte, keep time.Duration) (journal.Entry, error) {
	if record == nil {
		return journal.Entry{}, nil
	}
	return journal.Entry{State: journal.Done, Token: run.Token, Record: record, Left: keep}, nil
}

// ErrRolledBack is the error of a transaction that fails.
var ErrRolledBack = errors.New("the transaction was rolled back")

// InTx runs fn in a transaction, as sqljournal's InTx does.
func (j *Journal) InTx(ctx context.Context, fn func()) error {
	return journal.Transact(ctx, func(seal func() (journal.Commit, error)) error {
		fn()
		_, err := seal()
		if j.Failures--; err == nil && j.Failures >= 0 {
			err = ErrRolledBack
		}
		return err
	}, func(journal.Run, bool) (journal.Entry, error) {
		return journal.Entry{}, nil
	})
}
