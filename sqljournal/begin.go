package sqljournal

import (
	"context"
	"fmt"

	"github.com/onceguard/onceguard/journal"
)

// Begin is described at [journal.Journal]. It is one statement, and a second one if an intent journal finds a row or a
// transactional one finds an expired row. In MySQL and SQLite an intent journal first looks, and then inserts. Without
// interpolateParams in its DSN, the driver for MySQL takes two round trips for each of them, as it prepares it first.
func (j *Journal) Begin(ctx context.Context, run journal.Run) (e journal.Entry, err error) {
	if j.intent {
		err = again(func() error { e, err = j.tryBegin(ctx, run); return err })
	} else {
		e, err = j.beginTransactional(ctx, run)
	}
	if err != nil {
		return journal.Entry{}, fmt.Errorf("sqljournal: begin: %w", err)
	}
	return e, nil
}

// beginTransactional stores nothing. It removes a row that has expired, which insertNew would take for another run's.
func (j *Journal) beginTransactional(ctx context.Context, run journal.Run) (journal.Entry, error) {
	r, err := j.lookRow(ctx, run.Key)
	if err == nil && r.expired() {
		err = j.removeExpired(ctx, run.Key)
	}
	if err != nil {
		return journal.Entry{}, err
	}
	return r.entry(j.dialect.unit, run.Token)
}

// tryBegin returns errContended if it has neither stored a row nor found one: another was stored or removed in between.
func (j *Journal) tryBegin(ctx context.Context, run journal.Run) (journal.Entry, error) {
	var began bool
	var r row
	var err error
	args := []any{run.Key, run.Token, joinNote(run.Note, nil), j.dialect.units(run.Limit)}
	if j.dialect.beginNew != "" {
		began, r, err = j.beginThenLook(ctx, args)
	} else {
		began, r, err = j.lookThenBegin(ctx, run.Key, args)
	}
	switch {
	case err != nil:
		return journal.Entry{}, err
	case began:
		return journal.Entry{State: journal.Begun, Token: run.Token, Note: run.Note, Left: run.Limit}, nil
	case !r.found() || r.expired():
		return journal.Entry{}, errContended
	}
	return r.entry(j.dialect.unit, run.Token)
}

// beginThenLook first tries the statement for a key without a row. It costs half as much as the one that also looks.
func (t *table) beginThenLook(ctx context.Context, args []any) (began bool, r row, err error) {
	if n, err := t.dialect.exec(ctx, t.db, t.dialect.beginNew, args...); err != nil || n == 1 {
		return n == 1, r, err
	}
	rows, err := t.dialect.query(ctx, t.db, t.dialect.begin, args...)
	_, err = scanRow(rows, err, append([]any{&began}, r.columns()...)...)
	return began, r, err
}

// lookThenBegin stores the row after a look has found none.
func (t *table) lookThenBegin(ctx context.Context, key string, args []any) (began bool, r row, err error) {
	if r, err = t.lookRow(ctx, key); err != nil || r.found() && !r.expired() {
		return false, r, err
	}
	if r.expired() {
		if err := t.removeExpired(ctx, key); err != nil {
			return false, r, err
		}
	}
	n, err := t.dialect.exec(ctx, t.db, t.dialect.begin, args...)
	if isDuplicate(err) {
		return false, r, errContended
	}
	return n == 1, r, err
}
