package sqljournal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/onceguard/onceguard/middleware"
)

// Journal is a [middleware.Journal] in a table of a database, see [Schema]. Give it to the middleware, and call its InTx
// or Around in the handler. All methods may be called concurrently. It has nothing to close: the database is the caller's.
type Journal struct {
	db      *sql.DB
	intent  bool
	dialect *dialect
	looks   looks

	executionOf func(context.Context) execution // executionOf but in tests
}

var _ middleware.Journal = (*Journal)(nil)

// Option changes a setting of a [Journal].
type Option func(*Journal)

// SQLite selects SQLite's dialect. The default is PostgreSQL's.
//
// Open the database in WAL mode and with a busy timeout: one connection writes at a time and the others wait.
// [Journal.Check] reports a database that is set up differently.
func SQLite() Option { return func(j *Journal) { j.dialect = &sqlite } }

// Transactional returns a journal for handlers whose effect is in db itself. It stores nothing before the handler runs,
// and [Journal.InTx] commits its row together with the effect. It panics if db is nil.
func Transactional(db *sql.DB, opts ...Option) *Journal {
	return newJournal("Transactional", db, false, opts)
}

// Intent returns a journal for handlers whose effect is not in db. It commits a row before the handler runs. A row whose
// run died is handed out by [Journal.Sweep]. It panics if db is nil.
func Intent(db *sql.DB, opts ...Option) *Journal {
	return newJournal("Intent", db, true, opts)
}

func newJournal(name string, db *sql.DB, intent bool, opts []Option) *Journal {
	if db == nil {
		panic("sqljournal." + name + ": the database is nil")
	}
	j := &Journal{db: db, intent: intent, dialect: &postgresql, executionOf: executionOf}
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("sqljournal.%s: option %d is nil", name, i+1))
		}
		opt(j)
	}
	return j
}

// ErrLost means that a row is no longer the caller's: a sweep has handed it out, or another run was first. What the
// caller wanted to store with it must not be committed.
var ErrLost = errors.New("sqljournal: another has the row")

// tries bounds how often a statement is repeated when others change the same row meanwhile.
const tries = 5

// errContended means that a row was changed by others during each of the tries.
var errContended = errors.New("the row is changed all the time")

// isConflict reports whether err says that a statement failed because of concurrent transactions alone, so that it may be
// repeated. In a database whose default isolation is READ COMMITTED, this package's own statements do not fail so.
func isConflict(err error) bool {
	var coded interface{ SQLState() string } // pgx and lib/pq have it
	if !errors.As(err, &coded) {
		return false
	}
	switch coded.SQLState() {
	case "40001", "40P01": // serialization_failure, deadlock_detected
		return true
	}
	return false
}
