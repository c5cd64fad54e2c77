package middleware

// This file has what happens between the claim and the handler: the hold, and the journal's Begin.

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/lock"
)

// begin holds a claimed key ([WithAtMostOnce]), and checks that the request's deadline has not passed. If either fails,
// it releases the key in the background and returns a refusal. Claim and Hold together take at most the time for one
// operation.
func (c *call) begin(lease *lock.Lease) answer {
	err := c.hold(lease)
	if err == nil && errors.Is(c.r.Context().Err(), context.DeadlineExceeded) {
		err = c.r.Context().Err()
	}
	switch {
	case err == nil && c.journal != nil:
		return c.beginJournaled(lease)
	case err == nil:
		return answer{}
	}
	c.dropClaim(lease)
	return refuse(StoreUnavailable, notBegun(c.locker.TTL()), err)
}

// hold, with [WithAtMostOnce], keeps the key as long as responses are kept, even if this process dies.
func (c *call) hold(lease *lock.Lease) error {
	if !c.atMostOnce {
		return nil
	}
	ctx, cancel := context.WithDeadline(c.values(), c.timing.asked.Add(c.locker.OpTimeout()))
	defer cancel()
	err := lease.Hold(ctx, c.retention)
	if e := c.event; e != nil {
		e.Hold = phaseSince(e.Claim.end())
	}
	return err
}

// beginJournaled asks the journal whether the run may begin. lease is nil if Redis did not answer.
func (c *call) beginJournaled(lease *lock.Lease) answer {
	start := time.Now()
	t := c.newJournaledRun(start, lease)
	abandonAt(lease, t.deadline) // if the journal panics, too
	entry, err := c.askBegin(t.run)
	if c.event != nil {
		c.event.Journal = phaseSince(start)
	}
	isOurs := entry.State != Done && entry.Token == t.run.Token
	mayRun := entry.State == Absent || isOurs
	if err == nil && mayRun && !time.Now().Before(c.capByRequest(t.deadline)) { // the run would end at once
		err = context.DeadlineExceeded
	}
	switch {
	case err != nil:
		c.undoBegin(t.run)
		c.dropClaim(lease)
		return refuse(StoreUnavailable, notBegun(c.locker.TTL()), err)
	case mayRun:
		t.run.Intent = entry.State != Absent // Begin has left a row
		c.running.exec.journaled = t
		return answer{}
	}
	return c.answerFromJournal(lease, entry)
}

// newJournaledRun returns a run that begins at start. Without a lease it gets a token of its own.
func (c *call) newJournaledRun(start time.Time, lease *lock.Lease) *journaledRun {
	t := &journaledRun{call: c, deadline: start.Add(c.maxDuration)}
	t.unsealed.L = &t.mu
	t.run = JournalRun{Key: c.storageKey(), Note: c.encodeNote(nil), Limit: c.maxDuration}
	if lease != nil {
		t.run.Token = lease.Token()
	} else {
		t.run.Token = uuid.NewString()
	}
	return t
}

// askBegin calls the journal's Begin, and once more if that fails: the reply may have been lost, and the same token gets
// the same answer.
func (c *call) askBegin(run JournalRun) (JournalEntry, error) {
	begin := func(ctx context.Context) (JournalEntry, error) { return c.journal.Begin(ctx, run) }
	entry, err := c.askJournal(begin)
	if err != nil {
		entry, err = c.askJournal(begin)
	}
	return entry, err
}

// undoBegin frees, in the background, a row that Begin may have left although it returned an error. It does so twice: a
// Begin whose connection broke may still arrive after the first time. If too many are being undone, it does nothing: a
// leftover row only refuses retries until it is swept, and a database that recovers must not get one call for each
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
