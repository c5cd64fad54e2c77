package sqljournal

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/onceguard/onceguard/journal"
)

// Journal is a [journal.Journal] in a table of a database, see [Schema]. Give it to the middleware, and call its
// InTx or Around in the handler. All methods may be called concurrently. It need not be closed: the database is the
// caller's.
type Journal struct {
	table
	namespace string
	intent    bool
}

var _ journal.Journal = (*Journal)(nil)

// Option changes a setting of a [Journal].
type Option func(*Journal)

// SQLite selects SQLite's dialect. The default is PostgreSQL's.
//
// Open the database in WAL mode and with a busy timeout: one connection writes at a time and the others wait.
// [Journal.Check] reports a database that is set up differently.
func SQLite() Option { return func(j *Journal) { j.dialect = &sqlite } }

// MySQL selects the dialect of MySQL and MariaDB. namespace then has at most 600 bytes. [Journal.Check] reports a server
// or a DSN that does not fit.
func MySQL() Option { return func(j *Journal) { j.dialect = &mysql } }

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
		table: table{db: db, dialect: &postgresql, probeTime: probeTime, overrideTime: overrideTime}, namespace: namespace, intent: intent,
	}
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("sqljournal.%s: option %d is nil", name, i+1))
		}
		opt(j)
	}
	if limit := j.dialect.maxNamespace; limit > 0 && len(namespace) > limit {
		panic(fmt.Sprintf("sqljournal.%s: namespace is longer than %d bytes", name, limit))
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
