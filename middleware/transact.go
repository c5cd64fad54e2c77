package middleware

import (
	"bytes"
	"errors"
	"sync"
	"time"

	"github.com/onceguard/onceguard/middleware/internal/capture"
)

// This file has what a [Journal] does with a run while its handler runs: a transaction of the handler's, and with it the
// response.

// Journaled returns the run as its [Journal] knows it, and that journal. ok is false without a journal. It is for
// packages that implement a Journal.
func (e *Execution) Journaled() (run JournalRun, of Journal, ok bool) {
	if e == nil || e.journaled == nil {
		return JournalRun{}, nil, false
	}
	return e.journaled.run, e.journaled.call.journal, true
}

// Transact runs a transaction of the handler together with the record of its response, so that both are committed or
// neither is. It is for packages that implement a [Journal]; handlers call their functions, such as sqljournal's InTx.
//
// do begins the transaction, runs the handler's part of it, calls seal, stores the [Commit] that seal returns in the
// same transaction, commits, and returns nil. On any error, its own or seal's, it rolls back and returns that error.
// seal makes the response final, and returns [ErrNoResponse], [ErrTooLong] or [ErrBroken] if it cannot be stored. Until
// do has returned, nothing that the handler writes is sent.
//
// lookUp is called when do has returned an error, including when the reply to a COMMIT was lost. It returns what the
// journal holds for the run's key. If sealed is true, do may have sent a COMMIT: lookUp must then wait until that
// transaction has ended, and return an error if it cannot tell.
//
// Transact returns nil if and only if the transaction is committed. Its errors are
//
//   - [ErrAnswered]: the middleware answers the request itself, because another run's response is stored, or because it is
//     not known whether this transaction was committed.
//   - [ErrUncommitted]: do has returned nil without a successful seal. What it has done is not known, and the middleware
//     answers the request.
//   - [ErrTwice]: the run has committed a transaction before.
//   - [ErrCommitted]: a part of the response was sent already.
//   - any other error, such as do's own: nothing has happened, and the response is as it was before the call. The handler
//     answers, or calls Transact again.
//
// A panic of do goes on. The response is then as it was before or, if seal had succeeded, the middleware answers the
// request, because the transaction may be committed.
//
// The handler must not return before Transact does, even if another goroutine called it. Otherwise a transaction that is
// not sealed yet cannot be committed, and the client is told that the outcome is not known.
//
// It panics without a journal: see [Execution.Journaled].
func (e *Execution) Transact(do func(seal func() (Commit, error)) error, lookUp func(run JournalRun, sealed bool) (JournalEntry, error)) error {
	if e == nil || e.journaled == nil {
		panic("middleware.Execution.Transact: the run has no journal")
	}
	t := e.journaled
	if err := t.begin(); err != nil {
		return err
	}
	end := txEnd{phase: txInterrupted} // after a panic or a Goexit of do or lookUp
	defer func() { t.finish(end) }()
	err := do(t.seal)
	sealed := t.isSealed()
	switch {
	case err == nil && sealed:
		end.phase = txCommitted
		return nil
	case err == nil: // do has committed something without its record
		end = txEnd{phase: txUndecided, cause: ErrUncommitted}
		return ErrUncommitted
	}
	entry, lookErr := lookUp(t.run, sealed)
	end, err = t.decideAfterError(entry, err, lookErr, sealed)
	return err
}

// journaledRun is a run under a journal. The handler calls Transact, in any of its goroutines; all else is the serving
// goroutine's.
type journaledRun struct {
	call     *call
	run      JournalRun
	deadline time.Time // of the handler: not after the limit that the journal counts from Begin

	mu             sync.Mutex
	unsealed       sync.Cond     // phase is no longer txSealed
	txEnd                        // of the last transaction; does not change once cutOff has returned
	returned       bool          // the handler has: no transaction begins, and nothing is sealed any more
	record         []byte        // as it was sealed, the last time
	retained       time.Duration // with the record
	cookiesDropped bool          // the record is without its cookies
}

// txEnd is how a transaction has ended or, while it runs, how far it is.
type txEnd struct {
	phase txPhase
	entry JournalEntry // of txOvertaken: what stands
	cause error        // of txUndecided
}

// txPhase is how far the transaction of a run is:
//
//	from             to                                 when
//	txNone           txOpen                             Transact
//	txOpen           txSealed                           seal
//	txOpen           txNone, txOvertaken                do has failed
//	txOpen           txUndecided                        the handler has returned
//	txSealed         txCommitted                        do has returned nil, or lookUp the run's own record
//	txSealed         txNone, txOvertaken, txUndecided   do has failed
type txPhase uint8

const (
	txNone      txPhase = iota // not begun, or rolled back
	txOpen                     // do runs
	txSealed                   // do runs, and may have sent a COMMIT
	txCommitted                // with the run's record
	txOvertaken                // rolled back, and another run has the key
	txUndecided                // it is not known whether it was committed

	txInterrupted // only for finish: do or lookUp has not returned
)

// Why the end of a transaction is not known. A panic's value is left out, as in errNoReturn.
var (
	errLeftOpen    = errors.New("middleware: the handler returned before its transaction had ended")
	errInterrupted = errors.New("middleware: the transaction panicked, or called runtime.Goexit, after its response was sealed")
)

func (t *journaledRun) begin() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.returned:
		return capture.ErrReturned
	case t.phase == txCommitted:
		return ErrTwice
	case t.phase == txOvertaken, t.phase == txUndecided:
		return ErrAnswered
	case t.phase != txNone:
		return errConcurrentTx
	}
	err := t.call.running.writer.Mark()
	if errors.Is(err, capture.ErrSent) {
		return ErrCommitted
	}
	if err == nil {
		t.phase = txOpen
	}
	return err
}

// errConcurrentTx is returned to a handler that begins a transaction inside another, or beside it.
var errConcurrentTx = errors.New("middleware: the run has a transaction that has not ended")

func (t *journaledRun) seal() (Commit, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.call
	switch {
	case t.returned:
		return Commit{}, capture.ErrReturned
	case t.phase == txSealed: // code that owns the transaction tries it again, and seals again
		return t.asCommit(), nil
	case t.phase != txOpen:
		return Commit{}, ErrTwice
	}
	w := &c.running.writer
	if err := w.Fix(); err != nil {
		return Commit{}, err
	}
	response, dropped := w.Response(c.cookies)
	r := c.newRecord(response, time.Now())
	if !r.IsReadable() {
		return Commit{}, ErrTooLong
	}
	t.record = c.codec.Append(make([]byte, 0, r.Room()), w.Scratch(), c.identity.storageKey, r)
	t.retained, t.cookiesDropped = c.running.exec.decision().retention, dropped
	t.phase = txSealed
	return t.asCommit(), nil
}

func (t *journaledRun) asCommit() Commit {
	return Commit{Run: t.run, Record: t.record, Keep: t.retained}
}

func (t *journaledRun) isSealed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.phase == txSealed
}

// decideAfterError decides, after a transaction whose end is err, by what the journal holds.
func (t *journaledRun) decideAfterError(entry JournalEntry, err, lookErr error, sealed bool) (txEnd, error) {
	ours := entry.Token == t.run.Token
	switch {
	case lookErr != nil && sealed:
		return txEnd{phase: txUndecided, cause: errors.Join(err, lookErr)}, ErrAnswered
	case lookErr != nil: // no COMMIT can have been sent
		return txEnd{phase: txNone}, err
	case entry.State == Done && ours && sealed && bytes.Equal(entry.Record, t.record):
		return txEnd{phase: txCommitted}, nil
	case entry.State == Absent, entry.State != Done && ours:
		return txEnd{phase: txNone}, err
	}
	return txEnd{phase: txOvertaken, entry: entry}, ErrAnswered
}

// finish ends the transaction, unless cutOff has done so.
func (t *journaledRun) finish(end txEnd) {
	if end.phase == txInterrupted && t.isSealed() {
		end = txEnd{phase: txUndecided, cause: errInterrupted}
	}
	w := &t.call.running.writer
	switch end.phase {
	case txCommitted:
		(*sendObserver)(&t.call.running.exec).Sending() // Discard comes too late
	case txNone, txInterrupted:
		end.phase = txNone
		w.Rewind()
	default:
		w.Refuse()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.phase == txOpen || t.phase == txSealed {
		t.txEnd = end
	}
	t.unsealed.Broadcast()
}

// cutOff is called when the handler has returned. A sealed transaction may be in its COMMIT, so cutOff waits for it. An
// open one can no longer be sealed. It becomes undecided, so that what it has written is not taken for the response.
func (t *journaledRun) cutOff() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.returned = true
	for t.phase == txSealed {
		t.unsealed.Wait()
	}
	if t.phase == txOpen {
		t.txEnd = txEnd{phase: txUndecided, cause: errLeftOpen}
	}
}
