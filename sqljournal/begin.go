package sqljournal

import (
	"context"
	"fmt"

	"github.com/onceguard/onceguard/journal"
)

// Begin is described at [journal.Journal]. It is one statement, a second one if an intent journal finds a row, and more if
// that has expired. In MySQL and SQLite an intent journal first looks, and then inserts. Without
// interpolateParams in its DSN, the driver for MySQL takes two round trips for each of them, as it prepares it first.
func (j *Journal) Begin(ctx context.Context, run journal.Run) (e journal.Entry, err error) {
	err = again(func() error { e, err = j.tryBegin(ctx, run); return err })
	if err != nil {
		return journal.Entry{}, fmt.Errorf("sqljournal: begin: %w", err)
	}
	return e, nil
}

// lookAlive returns the row of key. It removes one that has expired, which begin and insert would take for another run's.
func (t *table) lookAlive(ctx context.Context, key string) (row, error) {
	r, err := t.lookRow(ctx, key)
	if err == nil && r.expired() {
		r, err = row{}, t.removeExpired(ctx, key)
	}
	return r, err
}

// tryBegin returns errContended if an intent journal has neither stored a row nor found one: another was stored or removed in
// between. A transactional journal stores none.
func (j *Journal) tryBegin(ctx context.Context, run journal.Run) (e journal.Entry, err error) {
	var r row
	if !j.intent || j.dialect.looksFirst {
		r, err = j.lookAlive(ctx, run.Key)
	}
	if err == nil && j.intent && !r.found() {
		var n int64
		n, err = j.dialect.exec(ctx, j.db, j.dialect.begin, run.Key, run.Token, joinNote(run.Note, nil), j.dialect.units(run.Limit))
		if err == nil && n == 1 {
			return journal.Entry{State: journal.Begun, Token: run.Token, Note: run.Note, Left: run.Limit}, nil
		}
		if err == nil || isDuplicate(err) {
			r, err = j.lookAlive(ctx, run.Key)
		}
		if err == nil && !r.found() {
			err = errContended
		}
	}
	if err != nil {
		return e, err
	}
	return r.entry(j.dialect.unit, run.Token)
}
