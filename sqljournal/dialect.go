package sqljournal

import (
	"database/sql"
	"time"
)

// dialect has the statements of one kind of database. A statement has the same parameters in each dialect: key, then
// token, then what is to be stored, then a time in units. A row is selected as the columns of [row].
type dialect struct {
	unit time.Duration // of times in parameters and results

	look     string // key
	lookMany string // keys as an array literal; empty: looks are not sent together

	beginNew string // key, token, note, limit: the intent row if there is no row; empty: a look goes before begin
	begin    string // key, token, note, limit: the intent row, over an expired one. After beginNew it selects what stands, too
	insert   string // key, token, record, keep: a row that is done, over an expired one
	finish   string // key, token, record, keep: the intent row becomes done
	free     string // key, token: the intent row goes
	note     string // key, token, note

	readCommitted sql.IsolationLevel // so that a statement that has waited sees what was committed meanwhile

	writeLock  string // taken first in a transaction that writes; empty: no need
	probe      string // key, token: waits for an open INSERT of the key; empty: writeLock has waited
	probeFound string // key: waits for an open UPDATE; the row also if it has expired

	sweep  string // token, lease, grace, since (NULL is now): takes one row; returns key, note, beginning, attempts, now
	expire string // removes up to expireBatch rows
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
