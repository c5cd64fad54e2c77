package sqljournal

import (
	"context"
	"database/sql"
	"time"
)

// dialect has the statements of one kind of database. A statement has the same parameters in each dialect: key, token,
// what it stores, and a time in units. Those that select a row select the columns of [row].
type dialect struct {
	operatorStatements
	// the findings of Journal.Check
	check func(context.Context, *sql.Tx) ([]error, error)

	// of times in parameters and results
	unit time.Duration
	// for a database whose parameters have no numbers; nil: not needed
	rewrite func(statement string, args []any) (string, []any)
	// in bytes; 0: no limit
	maxNamespace int

	// key: selects the row, even if it has expired
	look string

	// Begin looks before it inserts a row
	looksFirst bool
	// key, token, note, limit: inserts an intent row if there is no row
	begin string
	// key, token, record, keep: inserts a row that is done if there is no row
	insert string
	// key: deletes an expired row, for begin and insert
	removeExpired string

	// A row without an outcome has the token of its run, or that of the sweep to which it was handed out. The
	// statements that compare it serve both: finish and finishSwept have the same WHERE, and free also ends a sweep.
	// key, run's token, record, keep: makes the intent row done
	finish string
	// key, sweep's token, record, keep, fingerprint: the same, with the run's token, and keeps the fingerprint of the note
	finishSwept string
	// key, token of the run or the sweep: deletes the intent row
	free string
	// key, run's token, note: changes the note of the intent row
	note string

	// fill stores the record in a row that is done without one. For an operator, it does so before the time until, and also
	// in a row without an outcome. run is compared with ownerOfRow.
	// key, run, record, keep, until (NULL: for the run)
	fill string

	// a statement that has waited then sees what was committed while it waited
	readCommitted sql.IsolationLevel

	// first in a transaction that writes: takes the write lock, or marks the transaction; empty: not needed
	opening string
	// Without autocommit, a transaction that has ended is followed by another, which is not committed. Empty: a statement cannot end it.
	// in the transaction
	autocommitOff string
	// after it, in its connection
	autocommitOn string
	// fails with mysqlTwoRows if autocommit is off
	autocommits string

	// fails if the transaction that opening has marked has ended; empty: a statement cannot end it unnoticed
	stillOpen string
	// makes a COMMIT impossible after a statement that has failed; empty: a failed statement does
	abort string
	// limits how long the probe's connection waits, which is then closed; empty: it stops when its context ends
	probeLimit string
	// key, token: waits for an open INSERT of the key; empty: opening has waited for it
	probe string
	// key: waits for an open UPDATE, and selects the row even if it has expired
	probeFound string

	// Of the rows whose key begins with prefix. Their index is the one on until or expires_at, not that on the key, which
	// would also read the rows that are not due.
	// token, lease, grace, since (NULL means now), prefix: takes a row; returns key, note, beginning, attempts, now
	sweep string
	// prefix: removes up to expireBatch rows
	expire string

	// For a database that cannot change rows and return them in one statement: sweep and expire then only lock the rows,
	// and expire returns their keys.
	// key, token, lease: takes a row that sweep has locked; empty: sweep does
	sweepTake  string
	expireTake func(keys []string) (statement string, args []any)
}

// queryer is *sql.DB or *sql.Tx.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// exec executes a statement of the dialect, and returns how many rows it has changed.
func (s *dialect) exec(ctx context.Context, e Execer, statement string, args ...any) (int64, error) {
	if s.rewrite != nil {
		statement, args = s.rewrite(statement, args)
	}
	result, err := e.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// query executes a statement of the dialect that returns rows.
func (s *dialect) query(ctx context.Context, q queryer, statement string, args ...any) (*sql.Rows, error) {
	if s.rewrite != nil {
		statement, args = s.rewrite(statement, args)
	}
	return q.QueryContext(ctx, statement, args...)
}

// expireBatch is how many rows the statement expire removes at most.
const expireBatch = 1000

// units returns d in the dialect's unit, rounded up.
func (s *dialect) units(d time.Duration) int64 {
	n := int64(d / s.unit)
	if d%s.unit > 0 {
		n++
	}
	return n
}

// bytesOf returns b as a parameter. A driver might store a nil slice as an empty value instead of NULL.
func bytesOf(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// ownerOfRow is, in SQL, the token of the run that a row belongs to: a sweep writes its own token over it, and keeps it
// in the column run. A sweep of an earlier version has not kept it.
const ownerOfRow = `case when attempts = 0 then token else coalesce(run, token) end`

// fingerprintOfRow is, in SQL, the fingerprint of a row that a sweep has ended. finishSwept writes the run's token back
// into token. Where the two differ, run and fingerprint are left from an earlier run, whose row an instance of the release
// before has reused: this release clears both when a run begins.
const fingerprintOfRow = `case when token = run then fingerprint end`
