package run

// This file contains journal.Transact for a run: a transaction that stores the operation's effect and the record of its
// product together. In order:
//
//  1. beginTx calls BeginTx of the product. What the operation makes from now on belongs to the transaction.
//  2. do runs the operation's part of the transaction. At its end it calls sealTx, which encodes the record of the
//     product, and then sends the COMMIT. A do that runs the operation's part again calls sealTx again. The last one
//     counts.
//  3. If do fails, findEntry reads the journal, and decideAfterError decides from that whether the COMMIT has taken
//     effect.
//  4. finishTx makes the product final if the transaction is committed, puts it back as it was if it is rolled back, and
//     otherwise refuses everything that the operation still makes.
//  5. When the operation has ended, Run.CutOff calls cutOff: no transaction can be sealed any more. Then conclude
//     (journaled.go) ends the run by the txPhase.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceguard/onceguard/journal"
)

// txPhase is how far the transaction of a run is:
//
//	from       to                                  when
//	txNone     txOpen                              beginTx
//	txOpen     txSealed                            sealTx; in txSealed it makes another record
//	txOpen     txNone, txOvertaken                 do has failed; or panicked: txNone
//	txOpen     txUnknown                           do has returned nil, or the operation has ended before Transact
//	txSealed   txCommitted                         do has returned nil, or findEntry the run's own record
//	txSealed   txNone, txOvertaken, txUnknown      do has failed; or panicked: txUnknown
//	txSealed   txUnknown                           do has returned nil, and findEntry does not find the run's own record
type txPhase uint8

const (
	txNone      txPhase = iota // not begun, or rolled back
	txOpen                     // do runs
	txSealed                   // do runs, and may have sent a COMMIT
	txCommitted                // committed, with the run's record
	txOvertaken                // rolled back, and another run has the key
	txUnknown                  // it is not known whether it was committed
)

// txState is the state of a run's latest transaction.
type txState struct {
	phase txPhase
	entry journal.Entry // in txOvertaken: the other run's
	cause error         // in txUnknown
}

// transaction is the part of a journaled run that its operation may use, in any goroutine.
type transaction struct {
	owner    *Run
	run      journal.Run
	deadline time.Time // of the operation; counted from before Begin, so never after the limit that the journal counts

	mu       sync.Mutex
	unsealed sync.Cond // signaled when phase is no longer txSealed
	txState            // guarded by mu; does not change once cutOff has returned
	ended    bool      // guarded by mu; the operation has ended, so no transaction begins and none is sealed

	product TxProduct // set by beginTx: nil if no transaction has begun

	// What sealTx has made, the last time:
	record    []byte
	retention time.Duration // how long the record is kept
}

// Why it is not known whether a transaction was committed, or why none begins. A panic's value is left out: it may hold
// what must not be logged.
var (
	errLeftOpen     = errors.New("onceguard: the handler returned before its transaction had ended")
	errInterrupted  = errors.New("onceguard: the transaction panicked, or called runtime.Goexit, after its response was sealed")
	errUncommitted  = fmt.Errorf("%w: the transaction ended without the journal's record", journal.ErrAnswered)
	errTwice        = fmt.Errorf("%w: the run has committed a transaction", journal.ErrAnswered)
	errConcurrentTx = errors.New("onceguard: the run has a transaction that has not ended")
	errEnded        = errors.New("onceguard: the handler has returned")
)

// Journaled is called by [journal.FromContext].
func (t *transaction) Journaled() (journal.Run, journal.Journal) { return t.run, t.owner.guard.Journal }

// Transact is called by [journal.Transact].
func (t *transaction) Transact(
	do func(seal func() (journal.Commit, error)) error,
	findEntry func(run journal.Run, sealed bool) (journal.Entry, error),
) error {
	if err := t.beginTx(); err != nil {
		return err
	}
	state := txState{phase: txUnknown, cause: errInterrupted} // if do or findEntry panics
	defer func() {
		if state.cause == errInterrupted && !t.isSealed() {
			state = txState{phase: txNone}
		}
		t.finishTx(state)
	}()
	var err error
	state, err = t.runTx(do, findEntry)
	return err
}

// beginTx begins a transaction, unless the run has one that has not been rolled back.
func (t *transaction) beginTx() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended:
		return errEnded
	case t.phase == txCommitted:
		return errTwice
	case t.phase == txOvertaken, t.phase == txUnknown:
		return journal.ErrAnswered
	case t.phase != txNone:
		return errConcurrentTx
	}
	product := t.owner.product.(TxProduct)
	err := product.BeginTx()
	if err == nil {
		t.product, t.phase = product, txOpen
	}
	return err
}

// runTx calls do and, if that fails or the product was changed since the seal, findEntry. It returns how the
// transaction has ended, and the error for the operation.
func (t *transaction) runTx(
	do func(seal func() (journal.Commit, error)) error,
	findEntry func(run journal.Run, sealed bool) (journal.Entry, error),
) (txState, error) {
	doErr := do(t.sealTx)
	sealed := t.isSealed()
	if doErr != nil {
		entry, lookErr := findEntry(t.run, sealed)
		return t.decideAfterError(doErr, sealed, entry, lookErr)
	}
	isStored := sealed
	if sealed && t.product.Changed() { // perhaps by another attempt, which was not sealed
		entry, lookErr := findEntry(t.run, sealed)
		isStored = lookErr == nil && isOurEnd(entry, t.run, t.record)
	}
	if !isStored { // do may have committed something without its record
		return txState{phase: txUnknown, cause: errUncommitted}, errUncommitted
	}
	return txState{phase: txCommitted}, nil
}

// sealTx returns what the transaction has to store.
func (t *transaction) sealTx() (journal.Commit, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended:
		return journal.Commit{}, errEnded
	case t.phase != txOpen && t.phase != txSealed: // txSealed: the transaction is run again
		return journal.Commit{}, errTwice
	case !time.Now().Before(t.deadline): // another run's row may be gone already
		return journal.Commit{}, context.DeadlineExceeded
	}
	r := t.owner
	err := t.product.Seal(func(head, body []byte) {
		rec := r.newRecord(time.Now())
		rec.Head, rec.Body = head, body
		t.record = r.encode(&rec)
	})
	if err != nil {
		return journal.Commit{}, err
	}
	_, _, retention := r.control.Said()
	t.retention = r.guard.retentionFor(retention)
	t.phase = txSealed
	return journal.Commit{Run: t.run, Record: t.record, Keep: t.retention}, nil
}

func (t *transaction) isSealed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.phase == txSealed
}

// decideAfterError returns how a transaction has ended whose do has failed with doErr. entry and lookErr are what
// findEntry has returned.
func (t *transaction) decideAfterError(doErr error, sealed bool, entry journal.Entry, lookErr error) (txState, error) {
	rolledBack := txState{phase: txNone}
	if lookErr != nil {
		return txState{phase: txUnknown, cause: errors.Join(doErr, lookErr)}, journal.ErrAnswered
	}
	if sealed && isOurEnd(entry, t.run, t.record) {
		return txState{phase: txCommitted}, nil
	}
	// This run's own row, without an outcome. It is lost to the run once it was handed out, which makes it Unfinished.
	isOpenRow := entry.Token == t.run.Token && (entry.State == journal.Begun || entry.State == journal.Running)
	if entry.State == journal.Absent || isOpenRow {
		return rolledBack, doErr
	}
	return txState{phase: txOvertaken, entry: entry}, journal.ErrAnswered
}

// finishTx commits, rewinds or freezes the product to match the state in which the transaction has ended. Then it sets that
// state, unless cutOff has already given the transaction up. It sets it also if the product panics: cutOff waits for it,
// perhaps in this goroutine.
func (t *transaction) finishTx(state txState) {
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.phase == txOpen || t.phase == txSealed {
			t.txState = state
		}
		t.unsealed.Broadcast()
	}()
	switch state.phase {
	case txCommitted:
		t.owner.control.Sending() // Discard comes too late
		t.product.Committed()
	case txNone:
		t.product.Rewind()
	default:
		t.product.Freeze()
	}
}

// cutOff is called when the operation has ended. It waits for a sealed transaction, whose COMMIT may be on its way. The
// end of an open transaction is then unknown, as it can no longer be sealed, so that its partial output is not taken for the
// product.
func (t *transaction) cutOff() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	for t.phase == txSealed {
		t.unsealed.Wait()
	}
	if t.phase == txOpen {
		t.txState = txState{phase: txUnknown, cause: errLeftOpen}
	}
}
