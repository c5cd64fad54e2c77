package middleware

// This file contains what happens between the claim and the handler: the journal's Begin.

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

const maxUndone = 4096 // runs whose Begin is being undone, in one middleware

// begin checks the request's deadline, and asks the journal. If the run must not begin, it returns the answer, and
// releases the key in the background or settles it with the journal's record. lease is nil if only the journal protects
// the run.
func (c *call) begin(lease *lock.Lease) *answer {
	if err := c.deadlineError(); err != nil {
		c.dropClaim(lease)
		return refuse(StoreUnavailable, notBegun(c.locker.TTL()), err)
	}
	if c.journal != nil {
		return c.beginJournaled(lease)
	}
	return nil
}

// beginJournaled asks the journal whether the run may begin. lease is nil if Redis did not answer.
func (c *call) beginJournaled(lease *lock.Lease) *answer {
	start := time.Now()
	j := c.newJournaledRun(start, lease)
	abandonAt(lease, j.deadline) // now, so that the lease also runs out if the journal panics
	entry, err := c.askBegin(j.run)
	if c.event != nil {
		c.event.Journal = phaseSince(start)
	}
	isOurs := entry.State != journal.Done && entry.Token == j.run.Token
	mayRun := entry.State == journal.Absent || isOurs
	if err == nil && mayRun && !time.Now().Before(c.capByRequest(j.deadline)) { // the run would end at once
		err = context.DeadlineExceeded
	}
	switch {
	case err != nil:
		c.undoBegin(j.run)
		c.dropClaim(lease)
		return refuse(StoreUnavailable, notBegun(c.locker.TTL()), err)
	case !mayRun:
		return c.applyEntry(lease, entry)
	}
	j.run.Intent = entry.State != journal.Absent // an intent journal has stored a row
	c.running.exec.journaled = j
	return nil
}

// newJournaledRun returns a run that begins at start. It has the token of its lease, or a new one without a lease.
func (c *call) newJournaledRun(start time.Time, lease *lock.Lease) *journaledRun {
	j := &journaledRun{call: c, deadline: start.Add(c.maxDuration)}
	j.unsealed.L = &j.mu
	j.run = journal.Run{Key: c.storageKey(), Note: c.encodeNote(nil), Limit: c.maxDuration}
	if lease != nil {
		j.run.Token = lease.Token()
	} else {
		j.run.Token = uuid.NewString()
	}
	return j
}

// askBegin calls the journal's Begin. If that fails, it calls Begin once more: the reply may have been lost, and the
// same token gets the same answer.
func (c *call) askBegin(run journal.Run) (journal.Entry, error) {
	begin := func(ctx context.Context) (journal.Entry, error) { return c.journal.Begin(ctx, run) }
	entry, err := askJournal(c.detached(), begin)
	if err != nil {
		entry, err = askJournal(c.detached(), begin)
	}
	return entry, err
}

// undoBegin frees, in the background, a row that a failed Begin may have left. It does so twice, because a Begin whose
// connection broke may arrive after the first time.
//
// If too many are being undone, it does nothing: a recovering database must not get one call for each request that it
// has missed. A leftover row only refuses retries until it is swept.
func (c *call) undoBegin(run journal.Run) {
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
