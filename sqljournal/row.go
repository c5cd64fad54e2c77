package sqljournal

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/journal"
)

// States of a row, as they are stored.
const (
	stateBegun = 1
	stateDone  = 2
)

// row is a row as the statements of a [dialect] select it. Without a row, every column is NULL.
type row struct {
	// owner is the token of the run: see ownerOfRow
	key, owner sql.NullString
	state      sql.NullInt64
	note       []byte
	record     []byte
	// until its limit or its expiry, in units; negative after that
	left sql.NullInt64
	// since the run began, in units
	age sql.NullInt64
	// a sweep has handed it out: the run can no longer complete it
	isSwept sql.NullBool
	// of the run, if a sweep has ended it without its own record: see fingerprintOfRow
	fingerprint []byte
}

// columns returns the destinations for Scan.
func (r *row) columns() []any {
	return []any{&r.key, &r.owner, &r.state, &r.note, &r.record, &r.left, &r.age, &r.isSwept, &r.fingerprint}
}

// found reports whether there is a row.
func (r *row) found() bool { return r.key.Valid }

// expired reports whether the row is done and its time is over. Such a row counts as absent.
func (r *row) expired() bool { return r.state.Int64 == stateDone && r.left.Int64 <= 0 }

// entry returns the entry of the row for the run with that token. No run has an empty token.
func (r *row) entry(unit time.Duration, token string) (journal.Entry, error) {
	if !r.found() || r.expired() {
		return journal.Entry{}, nil
	}
	e := journal.Entry{Token: r.owner.String, Left: max(0, time.Duration(r.left.Int64)*unit)}
	switch r.state.Int64 {
	case stateDone:
		e.State, e.Record, e.Note = journal.Done, r.record, r.fingerprint
		return e, nil
	case stateBegun:
		e.Age = max(0, time.Duration(r.age.Int64)*unit)
		switch {
		case r.isSwept.Bool:
			e.State = journal.Unfinished
		case r.owner.String == token:
			e.State = journal.Begun
		case r.left.Int64 >= 0:
			e.State = journal.Running
		default:
			e.State = journal.Unfinished
		}
		var err error
		e.Note, _, err = splitNote(r.note)
		return e, err
	}
	return journal.Entry{}, fmt.Errorf("a row has the unknown state %d", r.state.Int64)
}

// scanRows reads the rows of a query, one after the other, into dest, and calls next after each. It reads to the end: only then is
// an UPDATE ... RETURNING certainly committed.
func scanRows(rows *sql.Rows, err error, next func(), dest ...any) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		next()
	}
	return rows.Err()
}

// scanRow reads the row that a query selects, if any.
func scanRow(rows *sql.Rows, err error, dest ...any) (found bool, _ error) {
	err = scanRows(rows, err, func() { found = true }, dest...)
	return found, err
}

// scanTexts reads the column that a query selects.
func scanTexts(rows *sql.Rows, err error) (all []string, _ error) {
	var one string
	err = scanRows(rows, err, func() { all = append(all, one) }, &one)
	return all, err
}

// expectOneRow returns nil if a statement, which belongs to operation, has changed the one row that it is for. The
// error is ErrLost if there was no such row.
func expectOneRow(operation string, n int64, err error) error {
	if err == nil && n != 1 {
		err = ErrLost
	}
	if err != nil {
		return fmt.Errorf("sqljournal: %s: %w", operation, err)
	}
	return nil
}
