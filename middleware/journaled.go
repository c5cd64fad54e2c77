package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// How a run with a journal ends: first in the journal, then in Redis. concludeJournaled decides by the state of the
// run's transaction (txPhase in transact.go) and, without one, by the run's ending:
//
//	transaction   ending                    journal            key in Redis        the client gets
//	committed     any                       has the record     settled with it     the run's response
//	overtaken     any                       has another run's  settled or released what the journal has
//	undecided     any (see below)           is not told        abandoned           503 commit-unknown
//	none          abandon                   is not told        abandoned           the run's response
//	none          free, no row since Begin  is not told        released            the run's response
//	none          store, or free a row      End                by End's answer     the run's response or, if another run
//	                                                                               has the key and nothing was sent, what
//	                                                                               the journal has
//
// If End fails, endInBackground retries it, and the client gets the run's response. After Keep, the background also
// calls End for a transaction that is undecided, unless the run is at most once: see concludeUndecided.

const (
	journalRetry      = time.Hour // how long to retry the undoing of a Begin, or an End
	maxPendingRecords = 64 << 20  // bytes of records that wait for a journal, in one middleware
	pendingCost       = 16 << 10  // added to the size of each record
)

// errOvertaken is the Event's error for a run that found another run's record at its end.
var errOvertaken = errors.New("middleware: the journal holds the record of another run")

// concludeJournaled stores the outcome of a run in the journal, and then in Redis. It returns the answer that replaces
// the run's own response if another run has the key in the journal, or the transaction is undecided.
func (c *call) concludeJournaled(lease *lock.Lease, end *ending) (replacement *answer, err error) {
	j := c.journaled()
	switch j.phase {
	case txCommitted:
		end.inJournal = true
		return nil, c.applyEnding(lease, end)
	case txOvertaken:
		return c.applyEntry(lease, j.entry), nil
	case txUndecided:
		return c.concludeUndecided(lease), nil
	}
	freesNoRow := end.action == freeKey && !j.run.Intent
	if end.action == abandonKey || freesNoRow {
		return nil, c.applyEnding(lease, end)
	}
	return c.endInJournal(lease, end)
}

// concludeUndecided leaves the key of a run whose transaction may still be committed. After Keep, which promises that
// the run is never repeated, the background stores a tombstone if the transaction turns out not to be committed.
func (c *call) concludeUndecided(lease *lock.Lease) *answer {
	j, d := c.journaled(), c.running.exec.decision()
	if !d.neverFree || c.running.exec.atMostOnce {
		abandon(lease)
		return refuse(Unknown, &commitUnknown, j.cause)
	}
	end := c.unknownTombstone(d, nil)
	end.encoded = c.encode(&end.record)
	err := c.endInBackground(lease, j.run, &end, j.cause)
	return refuse(Unknown, &commitUnknown, err)
}

// endInJournal calls the journal's End, with the record or to free the row. Then it applies to the key what the journal
// has answered.
func (c *call) endInJournal(lease *lock.Lease, end *ending) (replacement *answer, err error) {
	j := c.journaled()
	if end.action == storeRecord {
		end.encoded = c.encode(&end.record)
	}
	entry, err := askJournal(c.detached(), func(ctx context.Context) (journal.Entry, error) {
		return c.journal.End(ctx, j.run, end.encoded, end.retention)
	})
	if err != nil {
		return nil, c.endInBackground(lease, j.run, end, err)
	}
	if isOurEnd(entry, j.run, end.encoded) {
		end.inJournal = true
		return nil, c.applyEnding(lease, end)
	}
	if c.running.writer.Started() { // the client has a part of this run's response, so no other can replace it
		c.dropClaim(lease)
		return nil, errors.Join(errOvertaken, lock.ErrLost)
	}
	overtaken := fmt.Errorf("%w, and this one answered %d", errOvertaken, c.running.writer.Status())
	return answerAfterRun(c.applyEntry(lease, entry), overtaken), nil
}

// endInBackground sends an End until it succeeds, and then updates the key, which stays claimed until then. cause is
// why the End has not succeeded yet. The error that it returns is for the Event: it wraps cause and [lock.ErrPending].
// If too many records are pending, it abandons the key instead, and returns cause unchanged.
func (c *call) endInBackground(lease *lock.Lease, run journal.Run, end *ending, cause error) error {
	cost := int64(len(end.encoded) + pendingCost)
	if c.pendingRecords.Add(cost) > maxPendingRecords {
		c.pendingRecords.Add(-cost)
		abandon(lease)
		return cause
	}
	g := c.guard
	encoded, retention, completed := end.encoded, end.retention, c.timing.completed
	c.locker.Go(func(ctx context.Context) {
		defer g.pendingRecords.Add(-cost)
		limit := journalRetry
		if encoded != nil {
			limit = min(limit, retention)
		}
		var entry journal.Entry
		ended := retryJournal(ctx, limit, func(ctx context.Context) (err error) {
			entry, err = g.journal.End(ctx, run, encoded, retention-time.Since(completed))
			return err
		})
		if lease != nil {
			followJournal(ctx, lease, entry, ended, encoded == nil)
		}
	})
	end.size = len(encoded)
	return fmt.Errorf("%w; %w", cause, lock.ErrPending)
}

// followJournal applies to the key what a retried End has answered. ended is false if no End was answered. frees is
// true if End was to free the row. After an error the background retries Settle and Release, so their errors are
// dropped.
func followJournal(ctx context.Context, lease *lock.Lease, entry journal.Entry, ended, frees bool) {
	switch {
	case !ended: // the outcome is unknown: the lease runs out
		lease.Abandon()
	case canSettle(entry):
		_ = settleEncoded(ctx, lease, entry.Record, entry.Left)
	case frees, entry.State == journal.Done: // Redis has nothing to store: the journal answers a retry
		_ = lease.Release(ctx)
	default: // another run is open in the journal: the lease runs out
		lease.Abandon()
	}
}
