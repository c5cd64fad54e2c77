package sqljournal

import (
	"database/sql"
	"time"
)

// dialect has the statements of one kind of database. A statement has the same parameters in each dialect: key, token,
// what it stores, and a time in units. Those that select a row select the columns of [row].
type dialect struct {
	unit time.Duration // of times in parameters and results

	look     string // key: selects the row, even if it has expired
	lookMany string // keys as an array literal; empty: each look is sent alone

	beginNew string // key, token, note, limit: inserts an intent row if there is no row; empty: a look comes before begin
	begin    string // key, token, note, limit: the same, also over an expired row; with beginNew, selects the row found
	insert   string // key, token, record, keep: inserts a row that is done, or replaces an expired one

	insertNew     string // key, token, record, keep: the same if there is no row, and else fails; empty: insert will do
	removeExpired string // key: with insertNew, deletes an expired row

	// A row without an outcome has the token of its run, or that of the sweep to which it was handed out. The
	// statements that compare it serve both: finish and finishSwept have the same WHERE, and free also ends a sweep.
	finish      string // key, run's token, record, keep: makes the intent row done
	finishSwept string // key, sweep's token, record, keep, fingerprint: the same, with the run's token, and keeps the fingerprint of the note
	free        string // key, token of the run or the sweep: deletes the intent row
	note        string // key, run's token, note: changes the note of the intent row

	// For a row that a sweep has handed out or ended, on behalf of its run. run is compared with ownerOfRow.
	fill      string // key, run, record, keep, resolved: stores the record in a row that is done without one; if resolved, also in one that is handed out
	freeSwept string // key, run: deletes the intent row, for an operator

	readCommitted sql.IsolationLevel // a statement that has waited then sees what was committed while it waited

	writeLock  string // first in a transaction that writes; empty: not needed
	probe      string // key, token: waits for an open INSERT of the key; empty: writeLock has waited for it
	probeFound string // key: waits for an open UPDATE, and selects the row even if it has expired

	// Of the rows whose key begins with prefix. Their index is the one on until or expires_at, not that on the key, which
	// would also read the rows that are not due.
	sweep  string // token, lease, grace, since (NULL means now), prefix: takes a row; returns key, note, beginning, attempts, now
	expire string // prefix: removes up to expireBatch rows
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
