package journal

import (
	"context"
	"errors"
	"time"

	"github.com/onceguard/onceguard/internal/inrun"
)

// Commit is what a [Journal] stores in the operation's own transaction, so that the effect and its record are committed
// together.
type Commit struct {
	Run    Run
	Record []byte        // the response, encoded
	Keep   time.Duration // how long the record is kept
}

// Errors of an operation's transaction.
var (
	// ErrAnswered means that the door answers by itself: another run has taken effect, or it is not known yet whether
	// this one has. The operation should return: what it still writes is discarded. A write of the response, and a second
	// transaction, also return ErrAnswered once the transaction is committed.
	ErrAnswered = errors.New("journal: the run is answered already")

	// ErrNoResponse means that the transaction was rolled back because the operation had left no whole response by its
	// end. At the HTTP door, a buffering ResponseWriter between the middleware and the handler must pass the response on
	// before that, and a response has the length of its Content-Length.
	ErrNoResponse = errors.New("journal: no whole response was written in the transaction")

	// ErrTooLong means that the transaction was rolled back because the response is longer than the door stores.
	ErrTooLong = errors.New("journal: the response is too long to be stored")
)

// transactor is a run with a journal, as its door puts it into the context of the operation under [inrun.Key]. Both
// methods may be called concurrently.
type transactor interface {
	// Journaled returns the run, and the journal in which it was begun.
	Journaled() (run Run, of Journal)

	// Transact is described at [Transact].
	Transact(do func(seal func() (Commit, error)) error, findEntry func(run Run, sealed bool) (Entry, error)) error
}

// FromContext returns the run that ctx belongs to, and its journal. ok is false outside of a run, and in a run without
// a journal.
func FromContext(ctx context.Context) (run Run, of Journal, ok bool) {
	t, ok := ctx.Value(inrun.Key{}).(transactor)
	if !ok {
		return Run{}, nil, false
	}
	run, of = t.Journaled()
	return run, of, true
}

// Transact runs a transaction of the operation that ctx belongs to, together with the record of its response, so that
// both are committed or neither is. It is for packages that implement a [Journal]; operations call their functions,
// such as sqljournal's InTx.
//
// do begins the transaction, runs the operation's part of it, calls seal, stores the [Commit] that seal returns in the
// same transaction, commits, and returns nil. On any error, its own or seal's, it rolls back and returns that error.
// seal makes the response final, and returns [ErrNoResponse] or [ErrTooLong] if it cannot be stored. Until do has
// returned, nothing of the response is sent.
//
// After a COMMIT that has failed for certain, do may run the operation's part again and call seal again. What was
// written before the earlier seal does not count then: the response is as it was before Transact, and the last seal is
// the one that is committed. What is written after the last seal is discarded.
//
// findEntry is called when do has returned an error, also when only the reply to the COMMIT was lost, and when
// something was written after the last seal. It returns what the journal holds for the run's key. If sealed is true, do
// may have sent a COMMIT: findEntry must then wait until that transaction has ended. It returns an error if it cannot tell
// what is committed.
//
// Transact returns nil if and only if the transaction is committed. Its errors are
//
//   - [ErrAnswered]: the door answers by itself, because another run's response is stored, because it is not known
//     whether this transaction was committed, or because the run has committed a transaction before. It is not known what do
//     has done if it has returned nil without a successful seal, or if its last attempt has written a response without one.
//   - any other error, such as do's own: nothing has happened, and the response is as it was before the call. The
//     operation answers, or calls Transact again. At the HTTP door, middleware.ErrCommitted means that a part of the
//     response was sent before.
//
// A panic of do propagates. If seal had not succeeded, the response is then as it was before the call. Otherwise the
// transaction may be committed, and the door answers by itself.
//
// The operation must not return before Transact does, even if another goroutine called it. A transaction that is not
// sealed by that time cannot be committed any more, and the outcome is not known.
//
// A run has one transaction at a time: Transact returns an error if another one has not ended. It panics if ctx does
// not belong to a run with a journal: see [FromContext].
func Transact(
	ctx context.Context,
	do func(seal func() (Commit, error)) error, findEntry func(run Run, sealed bool) (Entry, error),
) error {
	t, ok := ctx.Value(inrun.Key{}).(transactor)
	if !ok {
		panic("journal.Transact: the context belongs to no run with a journal")
	}
	return t.Transact(do, findEntry)
}
