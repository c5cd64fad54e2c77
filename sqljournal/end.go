package sqljournal

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/journal"
)

// End is described at [journal.Journal]. It is one statement, and a look if that does not find the row as the run
// has left it. For an operator it is two statements and a look: see overrideUntil.
func (j *Journal) End(ctx context.Context, run journal.Run, record []byte, keep time.Duration) (e journal.Entry, err error) {
	try := j.tryEnd
	if run.Resolved {
		try = j.tryResolve
	}
	err = again(func() error { e, err = try(ctx, run, record, keep); return err })
	if err != nil {
		return journal.Entry{}, fmt.Errorf("sqljournal: end: %w", err)
	}
	return e, nil
}

// tryEnd returns errContended if its statement has changed nothing, although the look then finds what the statement
// needs: the row was changed in between.
func (j *Journal) tryEnd(ctx context.Context, run journal.Run, record []byte, keep time.Duration) (
	journal.Entry, error,
) {
	var outcome journal.Entry // of a statement that succeeds
	var n int64
	var err error
	if record == nil {
		n, err = j.dialect.exec(ctx, j.db, j.dialect.free, run.Key, run.Token)
	} else {
		outcome = journal.Entry{State: journal.Done, Token: run.Token, Record: record, Left: keep}
		n, err = j.dialect.store(ctx, j.db, journal.Commit{Run: run, Record: record, Keep: keep})
		if isDuplicate(err) {
			n, err = 0, nil
		}
	}
	if err != nil {
		return journal.Entry{}, err
	}
	if n == 1 {
		return outcome, nil
	}
	e, err := j.look(ctx, run.Key, run.Token)
	isOwn := err == nil && e.Token == run.Token
	switch {
	case err != nil:
		return e, err
	case isOwn && e.State == journal.Unfinished:
		return journal.Entry{}, journal.ErrHandedOut
	case isOwn && e.State == journal.Done && e.Record == nil && record != nil:
		n, err := j.dialect.exec(ctx, j.db, j.dialect.fill, run.Key, run.Token, record, j.dialect.units(keep), nil)
		return outcome, oneOrContended(n, err)
	case e.State == journal.Begun && (run.Intent || record == nil): // as finish and free need it
		return e, errContended
	case e.State == journal.Absent && !run.Intent && record != nil: // as insert needs it
		return e, cmp.Or(j.removeExpired(ctx, run.Key), errContended)
	}
	return e, nil
}
