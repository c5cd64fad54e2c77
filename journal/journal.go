package journal

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Journal is a durable record of runs in a database, in addition to Redis. Where it and Redis differ, the journal is
// right.
//
// All methods may be called concurrently. An error means that the database did not answer or refused. The call may have
// taken effect nevertheless, and can be repeated with the same token.
type Journal interface {
	// Namespace returns the namespace of the lock.Locker whose keys the journal is for. A door panics if its Locker has
	// another: the journal's own work on unfinished and expired rows would reach those of another service.
	Namespace() string

	// IsIntent reports whether Begin stores the run before the operation, so that the journal alone keeps others from
	// running: see lock.None.
	IsIntent() bool

	// Begin is called after the claim and before the operation. If the key is free, an intent journal stores run and
	// returns [Begun], and a transactional one stores nothing and returns [Absent]. Otherwise both return the entry
	// under the key, which is [Done], [Running] or [Unfinished], and the operation does not run. A row that has expired
	// counts as absent.
	//
	// A second Begin with the same token gets the same entry, also when the reply to the first one was lost.
	Begin(ctx context.Context, run Run) (Entry, error)

	// End stores record as the outcome of run, for the time keep, and returns the entry that is then under the key. If
	// it stored the record, that entry is Done and has run's token and this record. Any other entry means that it did
	// not: another run has the key, or this run has stored another record before.
	//
	// A row that is Done without a record takes this run's record. While a row is handed out, as by sqljournal's Sweep,
	// to find out what the run has done, End returns [ErrHandedOut], unless run.Resolved is set.
	//
	// If record is nil, End frees the key instead, and returns Absent. It does not remove a row that is Done or belongs
	// to another run, and returns such a row.
	End(ctx context.Context, run Run, record []byte, keep time.Duration) (Entry, error)

	// Look returns the entry under key, and changes nothing. It does not wait for open transactions, and never returns
	// Begun.
	Look(ctx context.Context, key string) (Entry, error)
}

// Run is a run as a [Journal] knows it.
type Run struct {
	Key    string        // as it stands in Redis, hashed
	Token  string        // a UUID in lower case: the lease's token, or a new one without a lease
	Note   []byte        // what the request is: its fingerprint, encoded
	Limit  time.Duration // how long the run may take, counted from Begin
	Intent bool          // Begin has returned Begun, so End completes a row. Begin does not read it

	// Resolved means that an operator has found out how the run has ended. End then also completes or frees a row that is
	// handed out. If it fails, a statement that is still on its way must change nothing some seconds later: the operator may
	// have found out more since.
	Resolved bool
}

// ErrHandedOut means that the run's limit has passed, and that its row is handed out to find out what the run has done.
// Until that is over, the run can neither complete nor free its row. A later End may.
var ErrHandedOut = errors.New("journal: the run's row is handed out")

// Entry is what a [Journal] has under a key. If State is Absent, no other field is set.
type Entry struct {
	State  State
	Token  string        // of the run that the entry belongs to
	Note   []byte        // of that Run. Done: only if Record is nil or has no fingerprint; nil if not known
	Record []byte        // Done: the stored response, or nil if none was kept
	Age    time.Duration // the time since the run began. Running and Unfinished only, else 0

	// Left is the time left. Begun and Running: until the run's limit. Unfinished: while the row is handed out; 0 if it is
	// not. Done: until the entry expires.
	Left time.Duration
}

// State is what a [Journal] knows of a key.
type State int

const (
	Absent     State = iota // nothing, or an entry that has expired
	Begun                   // the caller's own run is stored and has no outcome yet
	Running                 // a run is stored and is still within its limit
	Unfinished              // a run is stored, its limit is over, and it has no outcome
	Done                    // a run has its outcome
)

func (s State) String() string {
	names := [...]string{Absent: "absent", Begun: "begun", Running: "running", Unfinished: "unfinished", Done: "done"}
	if s < 0 || int(s) >= len(names) {
		return fmt.Sprintf("State(%d)", int(s))
	}
	return names[s]
}
