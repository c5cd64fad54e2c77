package middleware

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware/internal/record"
)

// This file has what the middleware asks of a [Journal] before and after a handler.

const (
	journalTimeout = 3 * time.Second // of one call to a journal
	journalRetry   = time.Hour       // how long to keep undoing a Begin or retrying an End
	journalPause   = 30 * time.Second

	maxPendingRecords = 64 << 20 // bytes of records that wait for a journal, in one middleware
	pendingCost       = 16 << 10 // added to the size of each record
	maxUndone         = 4096     // runs whose Begin is being undone, in one middleware
)

var (
	errRedisPaused = errors.New("middleware: Redis has failed less than a second ago, and was not asked")
	errUnfinished  = errors.New("middleware: the journal has an earlier run without an outcome, whose time is over")
	errOvertaken   = errors.New("middleware: the journal holds the record of another run")
)

// mayRunWithoutLease reports whether the journal alone decides about a request whose claim failed with err. It does unless
//
//   - the request's deadline has passed, or the Locker is closed,
//   - the key is known to hold something,
//   - WithAtMostOnce is set: its holds protect against instances that have no journal.
func (c *call) mayRunWithoutLease(err error) bool {
	return c.journal != nil && !c.atMostOnce && !errors.Is(c.r.Context().Err(), context.DeadlineExceeded) &&
		!errors.Is(err, lock.ErrForeign) && !errors.Is(err, lock.ErrSettled) && !errors.Is(err, lock.ErrClosed)
}

// askJournal calls f with the time that one call to the journal may take.
func (c *call) askJournal(f func(context.Context) (JournalEntry, error)) (JournalEntry, error) {
	ctx, cancel := context.WithTimeout(c.values(), journalTimeout)
	defer cancel()
	return f(ctx)
}

// answerFromJournal answers by an entry of another run. A record goes to Redis first, if the request has the key there,
// so that the next duplicate need not ask the journal.
func (c *call) answerFromJournal(lease *lock.Lease, entry JournalEntry) answer {
	a := c.answerByEntry(entry)
	if lease == nil || !entry.canSettle() || a.outcome == Unreadable {
		c.dropClaim(lease)
		return a
	}
	err := settleEncoded(c.values(), lease, entry.Record, entry.Left)
	if err != nil {
		a.err = errors.Join(a.err, err)
	}
	return a
}

// canSettle reports whether the entry has a record that can be stored in Redis: Settle refuses one that is about to
// expire, and would leave the key with its lease.
func (e *JournalEntry) canSettle() bool {
	return e.State == Done && e.Record != nil && e.Left >= time.Millisecond
}

// answerByEntry answers by what the journal holds.
func (c *call) answerByEntry(entry JournalEntry) answer {
	switch {
	case entry.State == Absent: // of a run whose row was removed meanwhile
		return refuse(Unknown, &outcomeUnknown, nil)
	case entry.State == Done && entry.Record == nil:
		return refuse(NotStored, &responseNotStored, nil)
	case entry.State == Done:
		return c.replay(entry.Record)
	}
	theirs, err := c.codec.DecodeNote(c.storageKey(), entry.Note)
	switch {
	case err != nil:
		return refuse(Unreadable, &recordUnreadable, err)
	case c.compare(theirs.Fingerprint) == different:
		return refuse(Reused, &keyReused, nil)
	case entry.State == Unfinished:
		return refuse(Unknown, &outcomeUnknown, errUnfinished)
	}
	return refuse(InFlight, &inFlight, nil)
}

// answerFromJournalOr answers a duplicate by the record that the journal has, and with otherwise if it has none. It is
// for a key in which Redis has, or can show, no response.
func (c *call) answerFromJournalOr(otherwise answer) answer {
	if c.journal == nil {
		return otherwise
	}
	start := c.clock()
	entry, err := c.askJournal(func(ctx context.Context) (JournalEntry, error) { return c.journal.Look(ctx, c.storageKey()) })
	if c.event != nil {
		c.event.Journal = phaseSince(start)
	}
	switch {
	case err != nil:
		return refuse(StoreUnavailable, &storeUnavailable, err)
	case entry.State == Done:
		return c.answerByEntry(entry)
	}
	return otherwise
}

// concludeJournaled stores the outcome of a run in the journal, and then in Redis. It returns the answer
// that replaces the run's own response if another run has the key in the journal, or the transaction is undecided.
func (c *call) concludeJournaled(lease *lock.Lease, end *ending) (replacement answer, err error) {
	t := c.running.exec.journaled
	freesNothing := end.action == freeKey && !t.run.Intent // no row was left at Begin
	switch {
	case t.phase == txCommitted: // the record is in the journal
		end.inJournal = true
		return answer{}, c.applyEnding(lease, end)
	case t.phase == txOvertaken:
		return c.answerFromJournal(lease, t.entry), nil
	case t.phase == txUndecided:
		return c.concludeUndecided(lease), nil
	case end.action == abandonKey, freesNothing: // there is nothing to tell the journal
		return answer{}, c.applyEnding(lease, end)
	}
	return c.endInJournal(lease, end)
}

// endInJournal calls the journal's End, with the record or to free the row, and then applies the ending to the key.
func (c *call) endInJournal(lease *lock.Lease, end *ending) (replacement answer, err error) {
	t := c.running.exec.journaled
	if end.action == storeRecord {
		end.encoded = c.encode(end.record)
	}
	entry, err := c.askJournal(func(ctx context.Context) (JournalEntry, error) {
		return c.journal.End(ctx, t.run, end.encoded, end.retention)
	})
	switch {
	case err != nil:
		return answer{}, c.endLater(lease, t.run, end, err)
	case isOurEnd(entry, t.run, end.encoded):
		end.inJournal = true
		return answer{}, c.applyEnding(lease, end)
	case c.running.writer.Started(): // the client has a part of this run's response
		c.dropClaim(lease)
		return answer{}, errors.Join(errOvertaken, lock.ErrLost)
	}
	status := c.running.writer.Status()
	replacement = answerAfterRun(c.answerFromJournal(lease, entry))
	replacement.outcome = LeaseLost
	replacement.err = errors.Join(fmt.Errorf("%w, and this one answered %d", errOvertaken, status), replacement.err)
	return replacement, nil
}

// concludeUndecided leaves the key of a run whose transaction may still be committed. After Keep, which promises that
// the run is never repeated, the background stores a tombstone if the transaction turns out not to be committed.
func (c *call) concludeUndecided(lease *lock.Lease) answer {
	t, decision := c.running.exec.journaled, c.running.exec.decision()
	if decision.keep && !c.running.exec.atMostOnce {
		end := c.tombstoneEnding(max(decision.retention, c.retention), nil)
		end.encoded = c.encode(end.record)
		err := c.endLater(lease, t.run, &end, t.cause)
		return refuse(Unknown, &commitUnknown, err)
	}
	if lease != nil {
		lease.Abandon()
	}
	return refuse(Unknown, &commitUnknown, t.cause)
}

// encode returns the record as it is stored, in memory of its own.
func (c *call) encode(r record.Record) []byte {
	return c.codec.Append(make([]byte, 0, r.Room()), c.running.writer.Scratch(), c.identity.storageKey, r)
}

// isOurEnd reports whether the entry that End returned is what End was to leave: the record or, without one, nothing.
func isOurEnd(entry JournalEntry, run JournalRun, encoded []byte) bool {
	if encoded == nil {
		return entry.State == Absent
	}
	return entry.State == Done && entry.Token == run.Token && bytes.Equal(entry.Record, encoded)
}

// endLater retries an End that has failed in the background, and then settles the key, which stays claimed until then. It
// returns cause, the error for the Event, which wraps [lock.ErrPending] unless too much is pending.
func (c *call) endLater(lease *lock.Lease, run JournalRun, end *ending, cause error) error {
	cost := int64(len(end.encoded) + pendingCost)
	if c.pendingRecords.Add(cost) > maxPendingRecords {
		c.pendingRecords.Add(-cost)
		if lease != nil {
			lease.Abandon()
		}
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
		var entry JournalEntry
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

// followJournal does with the key what the journal's entry calls for, after an End that was retried. ended is false if
// no End was answered, and frees is true if End had no record. An error goes on in the background, as each does.
func followJournal(ctx context.Context, lease *lock.Lease, entry JournalEntry, ended, frees bool) {
	switch {
	case !ended:
		lease.Abandon()
	case entry.canSettle():
		_ = settleEncoded(ctx, lease, entry.Record, entry.Left)
	case frees, entry.State == Done: // nothing to store in Redis: the journal answers retries
		_ = lease.Release(ctx)
	default: // another run is open in the journal
		lease.Abandon()
	}
}
