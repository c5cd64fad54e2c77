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
	check func(context.Context, *sql.Tx) ([]error, error) // the findings of Journal.Check

	unit         time.Duration                                      // of times in parameters and results
	rewrite      func(statement string, args []any) (string, []any) // for a database whose parameters have no numbers; nil: not needed
	maxNamespace int                                                // in bytes; 0: no limit

	look string // key: selects the row, even if it has expired

	looksFirst    bool   // Begin looks before it inserts a row
	begin         string // key, token, note, limit: inserts an intent row if there is no row
	insert        string // key, token, record, keep: inserts a row that is done if there is no row
	removeExpired string // key: deletes an expired row, for begin and insert

	// A row without an outcome has the token of its run, or that of the sweep to which it was handed out. The
	// statements that compare it serve both: finish and finishSwept have the same WHERE, and free also ends a sweep.
	finish      string // key, run's token, record, keep: makes the intent row done
	finishSwept string // key, sweep's token, record, keep, fingerprint: the same, with the run's token, and keeps the fingerprint of the note
	free        string // key, token of the run or the sweep: deletes the intent row
	note        string // key, run's token, note: changes the note of the intent row

	// fill stores the record in a row that is done without one. For an operator, it does so before the time until, and also
	// in a row without an outcome. run is compared with ownerOfRow.
	fill string // key, run, record, keep, until (NULL: for the run)

	readCommitted sql.IsolationLevel // a statement that has waited then sees what was committed while it waited

	opening string // first in a transaction that writes: takes the write lock, or marks the transaction; empty: not needed
	// Without autocommit, a transaction that has ended is followed by another, which is not committed. Empty: a statement cannot end it.
	autocommitOff string // in the transaction
	autocommitOn  string // after it, in its connection
	autocommits   string // fails with mysqlTwoRows if autocommit is off

	stillOpen  string // fails if the transaction that opening has marked has ended; empty: a statement cannot end it unnoticed
	abort      string // makes a COMMIT impossible after a statement that has failed; empty: a failed statement does
	probeLimit string // limits how long the probe's connection waits, which is then closed; empty: it stops when its context ends
	probe      string // key, token: waits for an open INSERT of the key; empty: opening has waited for it
	probeFound string // key: waits for an open UPDATE, and selects the row even if it has expired

	// Of the rows whose key begins with prefix. Their index is the one on until or expires_at, not that on the key, which
	// would also read the rows that are not due.
	sweep  string // token, lease, grace, since (NULL means now), prefix: takes a row; returns key, note, beginning, attempts, now
	expire string // prefix: removes up to expireBatch rows

	// For a database that cannot change rows and return them in one statement: sweep and expire then only lock the rows,
	// and expire returns their keys.
	sweepTake  string // key, token, lease: takes a row that sweep has locked; empty: sweep does
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
