package middleware

// This file contains what [journal.Transact] does with a run: a transaction that stores the handler's effect and the
// record of its response together. In order:
//
//  1. beginTx marks the response. What the handler writes from now on belongs to the transaction.
//  2. do runs the handler's part of the transaction. At its end it calls sealTx, which makes the response final,
//     encodes its record and sets it aside, and then sends the COMMIT. A do that runs the handler's part again calls
//     sealTx again. The last one counts.
//  3. If do fails, findOutcome reads the journal, and decideAfterError decides from that whether the COMMIT has taken
//     effect.
//  4. finishTx keeps the response if the transaction is committed, puts it back as it was if it is rolled back, and
//     otherwise refuses everything that the handler still writes.
//  5. When the handler has returned, the serving goroutine calls cutOff: no transaction can be sealed any more. Then
//     concludeJournaled (journaled.go) ends the run by the txPhase.

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/middleware/internal/capture"
)

// withRun returns ctx, the run's context, as one in which [journal.Transact] finds the run. Without a journal it finds
// none, even if there is a run around this one that has a journal.
func (c *call) withRun(ctx context.Context) context.Context {
	if j := c.journaled(); j != nil {
		return journal.NewContext(ctx, j)
	}
	if _, _, ok := journal.FromContext(c.r.Context()); ok {
		return journal.NewContext(ctx, nil)
	}
	return ctx
}

// Journaled is described at [journal.Transactor].
func (j *journaledRun) Journaled() (run journal.Run, of journal.Journal) {
	return j.run, j.call.journal
}

// Transact is described at [journal.Transact].
func (j *journaledRun) Transact(
	do func(seal func() (journal.Commit, error)) error, findOutcome func(run journal.Run, sealed bool) (journal.Entry, error),
) error {
	if err := j.beginTx(); err != nil {
		return err
	}
	var state txState
	returned := false
	defer func() {
		if !returned {
			state = j.interruptedTx()
		}
		j.finishTx(state)
	}()
	var err error
	state, err = j.runTx(do, findOutcome)
	returned = true
	return err
}

// txPhase is how far the transaction of a run is:
//
//	from       to                                  when
//	txNone     txOpen                              beginTx
//	txOpen     txSealed                            sealTx; in txSealed it makes another record
//	txOpen     txNone, txOvertaken                 do has failed; or panicked: txNone
//	txOpen     txUndecided                         do has returned nil, or the handler has returned before Transact
//	txSealed   txCommitted                         do has returned nil, or findOutcome the run's own record
//	txSealed   txNone, txOvertaken, txUndecided    do has failed; or panicked: txUndecided
//	txSealed   txUndecided                         do has returned nil, and findOutcome does not find the run's own record
type txPhase uint8

const (
	txNone      txPhase = iota // not begun, or rolled back
	txOpen                     // do runs
	txSealed                   // do runs, and may have sent a COMMIT
	txCommitted                // committed, with the run's record
	txOvertaken                // rolled back, and another run has the key
	txUndecided                // it is not known whether it was committed
)

// txState is the state of a run's latest transaction.
type txState struct {
	phase txPhase
	entry journal.Entry // in txOvertaken: the other run's
	cause error         // in txUndecided
}

// journaledRun is a run with a journal. The handler calls Transact, in any of its goroutines. The serving goroutine
// uses everything else.
type journaledRun struct {
	call     *call
	run      journal.Run
	deadline time.Time // of the handler; counted from before Begin, so never after the limit that the journal counts

	mu       sync.Mutex
	unsealed sync.Cond // signaled when phase is no longer txSealed
	txState            // guarded by mu; does not change once cutOff has returned
	returned bool      // guarded by mu; the handler has returned, so no transaction begins and none is sealed

	// What sealTx has made, the last time:
	record         []byte
	retained       time.Duration // how long the record is kept
	cookiesDropped bool          // the record is without the response's cookies
}

// Why the state of a transaction is not known. A panic's value is left out, as in errNoReturn.
var (
	errLeftOpen    = errors.New("middleware: the handler returned before its transaction had ended")
	errInterrupted = errors.New("middleware: the transaction panicked, or called runtime.Goexit, after its response was sealed")
)

// errConcurrentTx is returned to a handler that begins a transaction inside or beside another.
var errConcurrentTx = errors.New("middleware: the run has a transaction that has not ended")

// beginTx begins a transaction, unless the run has one that has not been rolled back.
func (j *journaledRun) beginTx() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.returned:
		return capture.ErrReturned
	case j.phase == txCommitted:
		return journal.ErrTwice
	case j.phase == txOvertaken, j.phase == txUndecided:
		return journal.ErrAnswered
	case j.phase != txNone:
		return errConcurrentTx
	}
	err := j.call.running.writer.Mark()
	if errors.Is(err, capture.ErrSent) {
		return ErrCommitted
	}
	if err == nil {
		j.phase = txOpen
	}
	return err
}

// runTx calls do and, if that fails or something was written since the seal, findOutcome. It returns how the transaction
// has ended, and the error for the handler.
func (j *journaledRun) runTx(
	do func(seal func() (journal.Commit, error)) error, findOutcome func(run journal.Run, sealed bool) (journal.Entry, error),
) (txState, error) {
	doErr := do(j.sealTx)
	sealed := j.isSealed()
	if doErr != nil {
		entry, lookErr := findOutcome(j.run, sealed)
		return j.decideAfterError(doErr, sealed, entry, lookErr)
	}
	isStored := sealed
	if sealed && j.call.running.writer.WrittenSince() { // perhaps by another attempt, which was not sealed
		entry, lookErr := findOutcome(j.run, sealed)
		isStored = lookErr == nil && isOurEnd(entry, j.run, j.record)
	}
	if !isStored { // do may have committed something without its record
		return txState{phase: txUndecided, cause: journal.ErrUncommitted}, journal.ErrUncommitted
	}
	return txState{phase: txCommitted}, nil
}

// sealTx makes the response final, and returns what the transaction has to store.
func (j *journaledRun) sealTx() (journal.Commit, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.call
	switch {
	case j.returned:
		return journal.Commit{}, capture.ErrReturned
	case j.phase != txOpen && j.phase != txSealed: // txSealed: the transaction is run again
		return journal.Commit{}, journal.ErrTwice
	}
	w := &c.running.writer
	if err := w.Fix(); err != nil {
		return journal.Commit{}, err
	}
	response, cookiesDropped := w.Response(c.cookies)
	r := c.newRecord(response, time.Now())
	if !r.IsReadable() {
		return journal.Commit{}, journal.ErrTooLong
	}
	j.record, j.retained, j.cookiesDropped = c.encode(&r), c.running.exec.decision().retention, cookiesDropped
	w.SetAside()
	j.phase = txSealed
	return journal.Commit{Run: j.run, Record: j.record, Keep: j.retained}, nil
}

func (j *journaledRun) isSealed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.phase == txSealed
}

// decideAfterError decides how a transaction whose do has failed has ended, by what findOutcome has returned.
func (j *journaledRun) decideAfterError(doErr error, sealed bool, entry journal.Entry, lookErr error) (txState, error) {
	rolledBack := txState{phase: txNone}
	if lookErr != nil && sealed { // the COMMIT may have taken effect
		return txState{phase: txUndecided, cause: errors.Join(doErr, lookErr)}, journal.ErrAnswered
	}
	if lookErr != nil { // no COMMIT can have been sent
		return rolledBack, doErr
	}
	if sealed && isOurEnd(entry, j.run, j.record) {
		return txState{phase: txCommitted}, nil
	}
	isOpenRow := entry.State != journal.Done && entry.Token == j.run.Token // this run's own row, without an outcome
	if entry.State == journal.Absent || isOpenRow {
		return rolledBack, doErr
	}
	return txState{phase: txOvertaken, entry: entry}, journal.ErrAnswered
}

// interruptedTx returns the state of a transaction whose do or findOutcome has panicked or called runtime.Goexit.
func (j *journaledRun) interruptedTx() txState {
	if j.isSealed() {
		return txState{phase: txUndecided, cause: errInterrupted}
	}
	return txState{phase: txNone}
}

// finishTx sets the state in which the transaction has ended, unless cutOff has already given it up. It keeps,
// rewinds or refuses the response to match.
func (j *journaledRun) finishTx(state txState) {
	w := &j.call.running.writer
	switch state.phase {
	case txCommitted:
		w.Keep()
		(*sendObserver)(&j.call.running.exec).Sending() // Discard comes too late
	case txNone:
		w.Rewind()
	default:
		w.Refuse()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.phase == txOpen || j.phase == txSealed {
		j.txState = state
	}
	j.unsealed.Broadcast()
}

// cutOff is called when the handler has returned. It waits for a sealed transaction, whose COMMIT may be on its way. An
// open transaction can no longer be sealed and becomes undecided, so that its partial output is not taken for the
// response.
func (j *journaledRun) cutOff() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.returned = true
	for j.phase == txSealed {
		j.unsealed.Wait()
	}
	if j.phase == txOpen {
		j.txState = txState{phase: txUndecided, cause: errLeftOpen}
	}
}
