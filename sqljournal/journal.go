package sqljournal

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onceguard/onceguard/journal"
)

// Journal is a [journal.Journal] in a table of a database, see [Schema]. Give it to the middleware, and call its
// InTx or Around in the handler. All methods may be called concurrently. It need not be closed: the database is the
// caller's.
type Journal struct {
	db        *sql.DB
	namespace string
	intent    bool
	dialect   *dialect
	batcher   batcher // of looks

	probeTime time.Duration // for all tries to find out whether a transaction was committed; tests change it
}

var _ journal.Journal = (*Journal)(nil)

// Option changes a setting of a [Journal].
type Option func(*Journal)

// SQLite selects SQLite's dialect. The default is PostgreSQL's.
//
// Open the database in WAL mode and with a busy timeout: one connection writes at a time and the others wait.
// [Journal.Check] reports a database that is set up differently.
func SQLite() Option { return func(j *Journal) { j.dialect = &sqlite } }

// Transactional returns a journal for handlers whose effect is in db itself. It stores nothing before the handler runs,
// and [Journal.InTx] commits its row together with the effect.
//
// namespace is that of the service's Locker. Several services may share a table: each sees only the rows of its own
// namespace. Transactional panics if db is nil, or if namespace is empty or has braces.
func Transactional(db *sql.DB, namespace string, opts ...Option) *Journal {
	return newJournal("Transactional", db, namespace, false, opts)
}

// Intent returns a journal for handlers whose effect is not in db. It commits a row before the handler runs. If
// the run dies, [Journal.Sweep] hands the row out. namespace and the panics are as for [Transactional].
func Intent(db *sql.DB, namespace string, opts ...Option) *Journal {
	return newJournal("Intent", db, namespace, true, opts)
}

func newJournal(name string, db *sql.DB, namespace string, intent bool, opts []Option) *Journal {
	switch {
	case db == nil:
		panic("sqljournal." + name + ": the database is nil")
	case namespace == "", strings.ContainsAny(namespace, "{}"):
		panic("sqljournal." + name + ": namespace must be a text that is not empty and has no braces")
	}
	j := &Journal{
		db: db, namespace: namespace, intent: intent, dialect: &postgresql, probeTime: probeTime,
	}
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("sqljournal.%s: option %d is nil", name, i+1))
		}
		opt(j)
	}
	return j
}

// Namespace is described at [journal.Journal].
func (j *Journal) Namespace() string { return j.namespace }

// IsIntent is described at [journal.Journal].
func (j *Journal) IsIntent() bool { return j.intent }

// keyPrefix returns what all keys of the journal's namespace begin with, and no others.
func (j *Journal) keyPrefix() string { return j.namespace + ":{" }

// ErrLost means that a row is no longer the caller's: a sweep has handed it out, or another run was first. The caller
// must not commit what it wanted to store with it.
var ErrLost = errors.New("sqljournal: another has the row")

// tries is how often a statement is tried, at most, while others change the same row.
const tries = 5

// errContended means that others have changed the row between two statements. Begin and End then try again. After the
// last try it is their error.
var errContended = errors.New("the row is changed all the time")

// isConflict reports whether a statement failed only because of concurrent transactions, so that it may be tried again.
// Apart from errContended, this package's own statements fail so only in a database whose default isolation is stricter
// than READ COMMITTED.
func isConflict(err error) bool {
	return errors.Is(err, errContended) || hasState(err, serializationFailure) || hasState(err, deadlockDetected)
}

// States of PostgreSQL's errors.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	uniqueViolation      = "23505"
)

// hasState reports whether err is an error of PostgreSQL with that state.
func hasState(err error, state string) bool {
	var coded interface{ SQLState() string } // pgx and lib/pq have it
	return errors.As(err, &coded) && coded.SQLState() == state
}
