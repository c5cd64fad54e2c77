package middleware

// This file contains the answers that a journal gives: to a duplicate, and to a run whose key another run has.

import (
	"context"
	"errors"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// lookInJournal answers a duplicate by the record in the journal, or with fallback if the journal has none. It is for a
// key of which Redis has no response, or cannot confirm it. A key that is too old to run is answered by any entry, as
// Begin would answer a younger one.
func (c *call) lookInJournal(fallback *answer) *answer {
	if c.journal == nil {
		return fallback
	}
	start := c.clock()
	entry, err := askJournal(c.detached(), func(ctx context.Context) (journal.Entry, error) {
		return c.journal.Look(ctx, c.storageKey())
	})
	if c.event != nil {
		c.event.Journal = phaseSince(start)
	}
	switch {
	case err != nil:
		return refuse(StoreUnavailable, &storeUnavailable, err)
	case entry.State == journal.Done, c.identity.expired && entry.State != journal.Absent:
		return c.answerByEntry(entry)
	}
	return fallback
}

// applyEntry ends a request that has claimed the key, by the entry of another run, and returns the answer to it. It
// settles the key with the entry's record, so that the next duplicate need not ask the journal. Without such a record
// it releases the key. lease is nil if Redis did not answer.
func (c *call) applyEntry(lease *lock.Lease, entry journal.Entry) *answer {
	a := c.answerByEntry(entry)
	if lease == nil || !canSettle(entry) || a.outcome == Unreadable {
		c.dropClaim(lease)
		return a
	}
	if err := settleEncoded(c.detached(), lease, entry.Record, entry.Left); err != nil {
		return &answer{outcome: a.outcome, problem: a.problem, replays: a.replays, err: errors.Join(a.err, err)}
	}
	return a
}

// answerByEntry returns the answer that follows from what the journal holds of another run.
func (c *call) answerByEntry(entry journal.Entry) *answer {
	switch {
	case entry.State == journal.Absent: // the row of this run was removed before its End
		return refuse(Unknown, &outcomeUnknown, nil)
	case entry.State == journal.Done && entry.Record == nil:
		return refuse(NotStored, &responseNotStored, nil)
	case entry.State == journal.Done:
		return c.replay(entry.Record)
	}
	theirs, err := c.codec.DecodeNote(c.storageKey(), entry.Note)
	switch {
	case err != nil:
		return refuse(Unreadable, &recordUnreadable, err)
	case c.compare(theirs.Fingerprint) == different:
		return reusedAnswer
	case entry.State == journal.Unfinished:
		return refuse(Unknown, &outcomeUnknown, errUnfinished)
	}
	return refuse(InFlight, &inFlight, nil)
}

// errUnfinished is the Event's error for a duplicate of a run that never ended.
var errUnfinished = errors.New("middleware: the journal has an earlier run without an outcome, whose time is over")
