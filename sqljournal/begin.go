package sqljournal

import (
	"context"
	"fmt"

	"github.com/onceguard/onceguard/middleware"
)

// Begin is described at [middleware.Journal]. In both modes it is one round trip, and for an
// intent journal a second one if there is a row; with SQLite at most two statements.
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
	step := j.beginFresh
	if j.dialect.beginNew == "" {
		step = j.beginAfterLook
	}
	began, r, err := step(ctx, []any{run.Key, run.Token, joinNote(run.Note, nil), j.dialect.units(run.Limit)})
	switch {
	case err != nil:
		return middleware.JournalEntry{}, err
	case began:
		return middleware.JournalEntry{State: middleware.Begun, Token: run.Token, Note: run.Note, Left: run.Limit}, nil
	}
	return r.entry(j.dialect.unit, run.Token)
}

// beginFresh stores the row of a key that has none, which costs half as much as the statement that also looks.
func (j *Journal) beginFresh(ctx context.Context, args []any) (began bool, r row, err error) {
	if n, err := changed(j.db.ExecContext(ctx, j.dialect.beginNew, args...)); err != nil || n == 1 {
		return n == 1, r, err
	}
	rows, err := j.db.QueryContext(ctx, j.dialect.begin, args...)
	_, err = scanRow(rows, err, append([]any{&began}, r.columns()...)...)
	return began, r, err
}

// beginAfterLook stores the row of a key after a look has found none.
func (j *Journal) beginAfterLook(ctx context.Context, args []any) (began bool, r row, err error) {
	if r, err = j.lookOne(ctx, args[0].(string)); err != nil || r.found() {
		return false, r, err
	}
	n, err := changed(j.db.ExecContext(ctx, j.dialect.begin, args...))
	return n == 1, r, err
}
