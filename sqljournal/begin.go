package sqljournal

import (
	"context"
	"fmt"

	"github.com/onceguard/onceguard/middleware"
)

// Begin is described at [middleware.Journal]. In both modes it is one round trip, with SQLite at most two statements.
func (j *Journal) Begin(ctx context.Context, run middleware.JournalRun) (middleware.JournalEntry, error) {
	e, err := j.begin(ctx, run)
	if err != nil {
		return middleware.JournalEntry{}, fmt.Errorf("sqljournal: begin: %w", err)
	}
	return e, nil
}

func (j *Journal) begin(ctx context.Context, run middleware.JournalRun) (middleware.JournalEntry, error) {
	if !j.intent {
		return j.look(ctx, run.Key, run.Token)
	}
	err := errContended
	for range tries {
		var e middleware.JournalEntry
		e, err = j.tryBegin(ctx, run)
		if err == nil && e.State != middleware.Absent {
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

// tryBegin answers Absent if it has neither stored a row nor seen one: another was stored, or removed, at that moment.
func (j *Journal) tryBegin(ctx context.Context, run middleware.JournalRun) (middleware.JournalEntry, error) {
	began := false
	var r row
	args := []any{run.Key, run.Token, joinNote(run.Note, nil), j.dialect.units(run.Limit)}
	if j.dialect.beginLooks {
		rows, err := j.db.QueryContext(ctx, j.dialect.begin, args...)
		if _, err = scanRow(rows, err, append([]any{&began}, r.columns()...)...); err != nil {
			return middleware.JournalEntry{}, err
		}
	} else {
		var err error
		if r, err = j.lookOne(ctx, run.Key); err != nil {
			return middleware.JournalEntry{}, err
		}
		if !r.found() {
			n, err := changed(j.db.ExecContext(ctx, j.dialect.begin, args...))
			if err != nil {
				return middleware.JournalEntry{}, err
			}
			began = n == 1
		}
	}
	if began {
		return middleware.JournalEntry{State: middleware.Begun, Token: run.Token, Note: run.Note, Left: run.Limit}, nil
	}
	return r.entry(j.dialect.unit, run.Token)
}
