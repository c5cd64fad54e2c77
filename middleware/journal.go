package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/middleware/internal/capture"
)

// Journal is a durable record of runs in a database, in addition to Redis. Where it and Redis differ, the journal is
// right. Package sqljournal provides one for PostgreSQL and SQLite.
//
// A journal works in one of two modes. An intent journal stores a row before the handler runs, so that a crash leaves a
// trace. A transactional journal stores nothing before the handler runs: its row is part of the handler's transaction.
//
// All methods may be called concurrently. An error means that the database did not answer or refused. The call may have
// taken effect nevertheless, and can be repeated with the same token.
type Journal interface {
	// Namespace returns the namespace of the Locker whose keys the journal is for. [Idempotency] and [Resolve] panic if
	// their Locker has another: a journal's own work on unfinished and expired rows would reach those of another service.
	Namespace() string

	// Begin is called after the claim and before the handler. If the key is free, an intent journal stores run and
	// returns [Begun], and a transactional one stores nothing and returns [Absent]. Otherwise both return the entry
	// under the key, which is [Done], [Running] or [Unfinished], and the handler does not run. A row that has expired
	// counts as absent.
	//
	// A second Begin with the same token gets the same entry, also when the reply to the first one was lost.
	Begin(ctx context.Context, run JournalRun) (JournalEntry, error)

	// End stores record as the outcome of run, for the time keep, and returns the entry that is then under the key. If
	// it stored the record, that entry is Done and has run's token and this record. Any other entry means that it did
	// not: another run has the key, or this run has stored another record before.
	//
	// If record is nil, End frees the key instead, and returns Absent. It does not remove a row that is Done or belongs
	// to another run, and returns such a row.
	End(ctx context.Context, run JournalRun, record []byte, keep time.Duration) (JournalEntry, error)

	// Look returns the entry under key, and changes nothing. It does not wait for open transactions, and never returns
	// Begun.
	Look(ctx context.Context, key string) (JournalEntry, error)
}

// JournalRun is a run as a [Journal] knows it.
type JournalRun struct {
	Key    string        // as it stands in Redis, hashed
	Token  string        // a UUID in lower case: the lease's token, or a new one without a lease
	Note   []byte        // what the request is: its fingerprint, encoded
	Limit  time.Duration // how long the run may take, counted from Begin
	Intent bool          // Begin has returned Begun, so End completes a row. Begin does not read it
}

// JournalEntry is what a [Journal] has under a key. If State is Absent, no other field is set.
type JournalEntry struct {
	State  JournalState
	Token  string        // of the run that the entry belongs to
	Note   []byte        // of that run's JournalRun; nil once it is Done
	Record []byte        // Done: the stored response, or nil if none was kept
	Left   time.Duration // Done: until the entry expires. Begun and Running: until the run's limit. Else 0
}

// JournalState is what a [Journal] knows of a key.
type JournalState int

const (
	Absent     JournalState = iota // nothing, or an entry that has expired
	Begun                          // the caller's own run is stored and has no outcome yet: only Begin and End answer it
	Running                        // a run is stored and is still within its limit
	Unfinished                     // a run is stored, its limit is over, and it has no outcome
	Done                           // a run has its outcome
)

func (s JournalState) String() string {
	switch s {
	case Absent:
		return "absent"
	case Begun:
		return "begun"
	case Running:
		return "running"
	case Unfinished:
		return "unfinished"
	case Done:
		return "done"
	}
	return fmt.Sprintf("JournalState(%d)", int(s))
}

// Commit is what a [Journal] stores in the handler's own transaction, so that the effect and its record are committed
// together.
type Commit struct {
	Run    JournalRun
	Record []byte        // the response, encoded
	Keep   time.Duration // how long the record is kept
}

// Errors of a handler's transaction that is run for a [Journal].
var (
	// ErrAnswered means that the middleware answers this request itself: another run has taken effect, or it is not
	// known yet whether this one has. The handler should return: what it still writes is discarded. Write also returns
	// ErrAnswered once the transaction is committed.
	ErrAnswered = capture.ErrAnswered

	// ErrNoResponse means that the transaction was rolled back because the handler had written no response by its end.
	// A buffering ResponseWriter between the middleware and the handler must pass the response on before that.
	ErrNoResponse = capture.ErrNoResponse

	// ErrTooLong means that the transaction was rolled back because the response is longer than [WithMaxResponse].
	ErrTooLong = capture.ErrTooLong

	// ErrBroken means that the transaction was rolled back because the response is shorter or longer than its
	// Content-Length.
	ErrBroken = capture.ErrBroken

	// ErrTwice means that this run has committed a transaction before. The second one did not begin.
	ErrTwice = errors.New("middleware: the run has committed a transaction already")

	// ErrUncommitted means that code which runs its own transaction returned no error, but has not stored the record in
	// it. It is not known whether that transaction was committed.
	ErrUncommitted = errors.New("middleware: the transaction ended without the journal's record")
)
