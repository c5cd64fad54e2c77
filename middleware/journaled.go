package middleware

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/lock"
	"github.com/onceguard/onceguard/middleware/internal/record"
)

// This file has what the middleware asks of a [Journal] before and after a handler.

const (
	journalTimeout = 3 * time.Second // of one call to a journal
	journalRetry   = time.Hour       // how long a Begin is undone, or an End tried again
	journalPause   = 30 * time.Second

	maxPendingRecords = 64 << 20 // bytes of records that wait for a journal, in one middleware
	pendingCost       = 16 << 10 // that each of them is counted with besides
	maxUndone         = 4096     // runs whose Begin is being undone, in one middleware
)

var (
	errRedisPaused = errors.New("middleware: Redis has failed less than a second ago, and was not asked")
	errUnfinished  = errors.New("middleware: the journal has an earlier run without an outcome, whose time is over")
	errOvertaken   = errors.New("middleware: the journal holds the record of another run")
)

// mayRunWithoutLease reports whether the journal alone decides about a request whose key could not be claimed: not if the
// request's time is over or the Locker is closed, not if the key is known to hold something, and not with WithAtMostOnce,
// whose holds are for instances that have no journal.
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

// beginJournaled asks the journal whether the run may begin. lease is nil if Redis cannot be reached.
func (c *call) beginJournaled(lease *lock.Lease) answer {
	start := time.Now()
	t := &journaledRun{call: c, overdue: start.Add(c.maxDuration)}
	t.ended.L = &t.mu
	abandonAt(lease, t.overdue) // if the journal panics
	t.run = JournalRun{Key: c.storageKey(), Note: c.encodeNote(nil), Limit: c.maxDuration}
	if lease != nil {
		t.run.Token = lease.Token()
	} else {
		t.run.Token = uuid.NewString()
	}
	begin := func(ctx context.Context) (JournalEntry, error) { return c.journal.Begin(ctx, t.run) }
	entry, err := c.askJournal(begin)
	if err != nil { // the reply may have been lost: the same token gets the same answer
		entry, err = c.askJournal(begin)
	}
	if c.event != nil {
		c.event.Journal = phaseSince(start)
	}
	ours := entry.State == Absent || entry.State != Done && entry.Token == t.run.Token
	if err == nil && ours && !time.Now().Before(c.earliest(t.overdue)) { // the run would end at once
		err = context.DeadlineExceeded
	}
	switch {
	case err != nil:
		c.undoBegin(t.run)
		c.releaseUnused(lease)
		return refuse(StoreUnavailable, notBegun(c.locker.TTL()), err)
	case ours:
		t.run.Intent = entry.State != Absent
		c.running.journaled = t
		return answer{}
	}
	return c.answerFromJournal(lease, entry)
}

// undoBegin frees, in the background, a row that Begin may have left although it returned an error. It does so twice: a
// Begin whose connection broke may still arrive after the first time. If too many are being undone, it does nothing: a
// row that is left refuses retries until it is swept, and a database that comes back must not meet a call for each
// request that it has missed.
func (c *call) undoBegin(run JournalRun) {
	g := c.guard
	if g.undoing.Add(1) > maxUndone {
		g.undoing.Add(-1)
		return
	}
	g.locker.Go(func(ctx context.Context) {
		defer g.undoing.Add(-1)
		undo := func(ctx context.Context) error {
			_, err := g.journal.End(ctx, run, nil, 0)
			return err
		}
		if retryJournal(ctx, journalRetry, undo) && sleep(ctx, journalTimeout) {
			retryJournal(ctx, journalRetry, undo)
		}
	})
}

// answerFromJournal answers by an entry of another run. A record goes to Redis first, if the request has the key there,
// so that the next duplicate need not ask the journal.
func (c *call) answerFromJournal(lease *lock.Lease, entry JournalEntry) answer {
	a := c.answerByEntry(entry)
	if lease == nil || !entry.canSettle() || a.outcome == Unreadable {
		c.releaseUnused(lease)
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

// concludeJournaled stores the outcome of a run in the journal, and then in Redis. It returns the answer that goes out in
// place of the run's own response, if there is one.
func (c *call) concludeJournaled(lease *lock.Lease, end *ending) (instead answer, err error) {
	t := c.running.journaled
	switch t.phase {
	case txCommitted:
		end.inJournal = true
		return answer{}, c.settle(lease, end)
	case txOvertaken:
		return c.answerFromJournal(lease, t.entry), nil
	case txUndecided:
		return c.concludeUndecided(lease), nil
	}
	switch {
	case end.action == abandonKey, end.action == freeKey && !t.run.Intent:
		return answer{}, c.settle(lease, end)
	case end.action == storeRecord:
		end.encoded = c.encode(end.record)
	}
	entry, err := c.askJournal(func(ctx context.Context) (JournalEntry, error) {
		return c.journal.End(ctx, t.run, end.encoded, end.retention)
	})
	switch {
	case err != nil:
		return answer{}, c.endLater(lease, t.run, end, err)
	case stands(entry, t.run, end.encoded):
		end.inJournal = true
		return answer{}, c.settle(lease, end)
	case c.running.writer.Committed():
		c.releaseUnused(lease)
		return answer{}, errors.Join(errOvertaken, lock.ErrLost)
	}
	status := c.running.writer.Status()
	instead = c.answerFromJournal(lease, entry)
	if instead.isAboutOther() { // this request ran
		instead = refuse(Unknown, &outcomeUnknown, nil)
	}
	instead.outcome = LeaseLost
	instead.err = errors.Join(fmt.Errorf("%w, and this one answered %d", errOvertaken, status), instead.err)
	return instead, nil
}

// concludeUndecided leaves the key of a run whose transaction may still be committed. After Keep, which promises that
// the run is never repeated, the background stores a tombstone if the transaction turns out not to be committed.
func (c *call) concludeUndecided(lease *lock.Lease) answer {
	t, decision := c.running.journaled, c.running.exec.decision()
	if decision.keep && !c.running.exec.atMostOnce {
		end := c.storeTombstone(max(decision.retention, c.retention), nil)
		end.encoded = c.encode(end.record)
		return refuse(Unknown, &commitUnknown, c.endLater(lease, t.run, &end, t.cause))
	}
	if lease != nil {
		lease.Abandon()
	}
	return refuse(Unknown, &commitUnknown, t.cause)
}

// encode returns the record as it is stored, in memory of its own.
func (c *call) encode(r record.Record) []byte {
	return c.codec.Append(make([]byte, 0, r.Room()), c.running.writer.Scratch(), c.identity.inRedis, r)
}

// stands reports whether the entry that End returned is what End was to leave: the record or, without one, nothing.
func stands(entry JournalEntry, run JournalRun, encoded []byte) bool {
	if encoded == nil {
		return entry.State == Absent
	}
	return entry.State == Done && entry.Token == run.Token && bytes.Equal(entry.Record, encoded)
}

// endLater goes on in the background with an End that has failed, and then settles the key, which is kept until then. The
// error that it returns is the Event's.
func (c *call) endLater(lease *lock.Lease, run JournalRun, end *ending, failed error) error {
	cost := int64(len(end.encoded) + pendingCost)
	if c.pendingRecords.Add(cost) > maxPendingRecords {
		c.pendingRecords.Add(-cost)
		if lease != nil {
			lease.Abandon()
		}
		return failed
	}
	g := c.guard
	encoded, retention, returned := end.encoded, end.retention, c.timing.completed
	c.locker.Go(func(ctx context.Context) {
		defer g.pendingRecords.Add(-cost)
		limit := journalRetry
		if encoded != nil {
			limit = min(limit, retention)
		}
		var entry JournalEntry
		ended := retryJournal(ctx, limit, func(ctx context.Context) (err error) {
			entry, err = g.journal.End(ctx, run, encoded, retention-time.Since(returned))
			return err
		})
		switch {
		case lease == nil:
		case !ended:
			lease.Abandon()
		case entry.canSettle():
			_ = settleEncoded(ctx, lease, entry.Record, entry.Left) // one that fails goes on in the background
		case encoded == nil, entry.State == Done:
			_ = lease.Release(ctx) // a release that fails goes on in the background
		default:
			lease.Abandon()
		}
	})
	end.size = len(encoded)
	return fmt.Errorf("%w; %w", failed, lock.ErrPending)
}
