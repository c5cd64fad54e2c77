package sqljournal

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/middleware"
)

// End is described at [middleware.Journal]. It is one statement, and a second one if that does not find the row as the
// run has left it.
func (j *Journal) End(ctx context.Context, run middleware.JournalRun, record []byte, keep time.Duration) (middleware.JournalEntry, error) {
	e, err := j.end(ctx, run, record, keep)
	if err != nil {
		return middleware.JournalEntry{}, fmt.Errorf("sqljournal: end: %w", err)
	}
	return e, nil
}

func (j *Journal) end(ctx context.Context, run middleware.JournalRun, record []byte, keep time.Duration) (middleware.JournalEntry, error) {
	err := errContended
	for range tries {
		var e middleware.JournalEntry
		var again bool
		e, again, err = j.tryEnd(ctx, run, record, keep)
		if err == nil && !again {
			return e, nil
		}
		if err == nil {
			err = errContended
		} else if !isConflict(err) {
			break
		}
	}
	return middleware.JournalEntry{}, err
}

// tryEnd reports again if what it sees would have let its own statement succeed: it changed at that moment.
func (j *Journal) tryEnd(ctx context.Context, run middleware.JournalRun, record []byte, keep time.Duration) (
	e middleware.JournalEntry, again bool, err error,
) {
	var n int64
	if record == nil {
		n, err = changed(j.db.ExecContext(ctx, j.dialect.free, run.Key, run.Token))
	} else {
		n, err = j.store(ctx, j.db, middleware.Commit{Run: run, Record: record, Keep: keep})
	}
	switch {
	case err != nil:
		return e, false, err
	case n == 1 && record == nil:
		return e, false, nil
	case n == 1:
		return middleware.JournalEntry{State: middleware.Done, Token: run.Token, Record: record, Left: keep}, false, nil
	}
	e, err = j.look(ctx, run.Key, run.Token)
	switch e.State {
	case middleware.Begun:
		again = run.Intent || record == nil
	case middleware.Absent:
		again = !run.Intent && record != nil
	}
	return e, again, err
}

// store sends the statement that stores a commit's record, and returns how many rows it has changed: 1, or 0 if another
// has the row.
func (j *Journal) store(ctx context.Context, e Execer, c middleware.Commit) (int64, error) {
	statement := j.dialect.insert
	if c.Run.Intent {
		statement = j.dialect.finish
	}
	return changed(e.ExecContext(ctx, statement, c.Run.Key, c.Run.Token, bytesOf(c.Record), j.dialect.units(c.Keep)))
}

// changed returns how many rows a statement has changed.
func changed(res sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
