package adaptertest

import (
	"context"
	"errors"
	"time"

	"github.com/onceguard/onceguard/journal"
)

// Journal is a transactional Journal whose first transactions fail.
type Journal struct {
	journal.Journal
	Failures int
}

// Namespace returns that of the tests' Lockers.
func (*Journal) Namespace() string { return "test" }

// IsIntent returns false.
func (*Journal) IsIntent() bool { return false }

// Begin finds no earlier run.
func (*Journal) Begin(context.Context, journal.Run) (none journal.Entry, _ error) { return none, nil }

// End finds that the transaction has stored the record.
func (*Journal) End(_ context.Context, run journal.Run, record []byte, keep time.Duration) (e journal.Entry, _ error) {
	if record != nil {
		e = journal.Entry{State: journal.Done, Token: run.Token, Record: record, Left: keep}
	}
	return e, nil
}

// InTx runs h in a transaction, as sqljournal's InTx does.
func (j *Journal) InTx(c Context, h Handler) error {
	return journal.Transact(c.Request().Context(), func(seal func() (journal.Commit, error)) error {
		_ = h(c)
		_, err := seal()
		if j.Failures--; err == nil && j.Failures >= 0 {
			err = errors.New("the transaction was rolled back")
		}
		return err
	}, func(journal.Run, bool) (none journal.Entry, _ error) { return none, nil })
}
