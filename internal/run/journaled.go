package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/onceguard/onceguard/internal/inrun"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// journaled is the protection by a journal, beside a lease or alone. A run ends first in the journal, then in Redis.
// conclude decides by the state of the run's transaction (txPhase in transact.go) and, without one, by the run's action:
//
//	transaction  action                           journal            key in Redis         the caller gets
//	committed    any                              has the record     settled with it      the run's product
//	overtaken    any                              has another run's  settled or released  what the journal has
//	unknown      any (see below)                  is not called      left                 CommitUnknown
//	none         leave                            is not called      left                 the run's product
//	none         free, and Begin stored no row    is not called      released             the run's product
//	none         store, tombstone, or free a row  End                by End's entry       the run's product or, if another
//	                                                                                      run has the key and nothing was
//	                                                                                      sent, what the journal has
//
// If End fails, endInBackground retries it, and the caller gets the run's product. End also fails while a sweep has the
// row: what the sweep stores may differ from what the caller got. After Keep, or once a part was sent, the background also
// calls End for a transaction whose end is unknown, unless the run is strict: see concludeUnknown.
//
// A row stands as long as a run may commit. Under a transactional journal two runs of one key may have begun, if Redis has
// lost the first one's claim, and the row of the one that commits is what rolls the other back. So no transaction is sealed
// after its run's limit, and Guard.retentionFor keeps a record for longer than that, whatever the operation has asked for. An
// intent journal needs no such time: its row lets no second run begin.
type journaled struct{ transaction }

var (
	// errOvertaken is the observer's error for a run that found another run's record at its end.
	errOvertaken = errors.New("onceguard: the journal holds the record of another run")

	// ErrOutsideTx is the observer's error for a run under a transactional journal whose product, which may have an effect,
	// was not part of a transaction.
	ErrOutsideTx = errors.New("onceguard: the operation ended outside of the journal's transaction: " +
		"the journal protects nothing here, Redis alone does")
)

// newJournaled returns the protection of a run that begins now. It has the token of its lease, or a new one without a
// lease.
func newJournaled(r *Run) *journaled {
	g := r.guard
	j := new(journaled)
	j.owner, j.deadline, j.unsealed.L = r, time.Now().Add(g.MaxDuration), &j.mu
	j.run = journal.Run{Key: r.StorageKey, Note: g.note(nil, &r.Request), Limit: g.MaxDuration}
	if r.lease != nil {
		j.run.Token = r.lease.Token()
	} else {
		j.run.Token = uuid.NewString()
	}
	return j
}

// admit asks the journal whether the run may begin.
func (j *journaled) admit(r *Run) Result {
	r.renewUntil(j.deadline) // now, so that the lease also runs out if the journal panics
	start := time.Now()
	entry, err := r.guard.ask.begin(r.detached(), j.run)
	r.Phases.Journal = PhaseSince(start)
	isOurs := entry.State == journal.Begun // if its row was handed out since, it is Unfinished
	mayRun := entry.State == journal.Absent || isOurs
	if err == nil && mayRun && !time.Now().Before(r.capByCaller(j.deadline)) { // the run would end at once
		err = context.DeadlineExceeded
	}
	switch {
	case err != nil:
		r.guard.ask.undoBegin(j.run)
		r.releaseInBackground()
		return refuse(NotBegun, err)
	case !mayRun:
		return j.settleWith(r, entry)
	}
	j.run.Intent = isOurs // an intent journal has stored a row
	return Result{Kind: Begun}
}

// start gives the context no lease: the journal decides who has run, so the loss of the lease must not end the operation.
func (j *journaled) start(r *Run) context.Context {
	r.ctx.deadline = r.capByCaller(j.deadline)
	return context.WithValue(&r.ctx, inrun.Key{}, j)
}

func (j *journaled) hasRow() bool { return j.run.Intent }

func (j *journaled) conclude(r *Run, end Ending) Result {
	switch j.phase {
	case txCommitted:
		d := decision{run: r, action: Store, encoded: j.record, size: len(j.record), retention: j.retention, outcome: OutcomeExecuted, ended: true}
		if end.How == Interrupted {
			d.err = end.Err
		}
		return d.own(d.apply())
	case txOvertaken:
		result := j.settleWith(r, j.entry)
		result.Settle = PhaseSince(r.completed)
		return result
	case txUnknown:
		return j.concludeUnknown(r)
	}
	d := r.decide(end)
	outsideTx := j.product == nil && !r.product.NeedsNoTx() // after a rollback, which leaves j.product set, a failure is stored
	if d.action == Store && !j.run.Intent && outsideTx {
		d.err = errors.Join(ErrOutsideTx, d.err)
	}
	freesNoRow := d.action == Free && !j.run.Intent
	if d.action == Leave || freesNoRow {
		return d.own(d.apply())
	}
	return j.end(r, &d)
}

// concludeUnknown leaves the key of a run whose transaction may still be committed. A run is never repeated after Keep,
// or once a part of its product was sent: the background stores a tombstone if the transaction turns out not to be
// committed.
func (j *journaled) concludeUnknown(r *Run) Result {
	wish, sent, retention := r.control.Said()
	if neverFree := sent || wish == WishKeep; !neverFree || r.IsStrict() {
		r.leave()
		return refuse(CommitUnknown, j.cause)
	}
	d := decision{run: r, action: UnknownTombstone, record: r.tombstone(UnknownTombstone, false), retention: r.guard.retentionFor(max(retention, r.guard.Retention))}
	d.encode()
	return refuse(CommitUnknown, j.endInBackground(r, &d, j.cause))
}

// end calls the journal's End, with the record or to free the row. Then it applies to the key what End has
// returned.
func (j *journaled) end(r *Run, d *decision) Result {
	d.encode()
	entry, err := r.guard.ask.end(r.detached(), j.run, d.encoded, d.retention)
	if err != nil {
		return d.own(j.endInBackground(r, d, err))
	}
	if isOurEnd(entry, j.run, d.encoded) {
		d.ended = true
		return d.own(d.apply())
	}
	if r.product.Sent() { // the caller has a part of this run's product, so no other can replace it
		r.releaseInBackground()
		return d.own(errors.Join(errOvertaken, lock.ErrLost))
	}
	overtaken := fmt.Errorf("%w, and this one %v", errOvertaken, r.product)
	return r.asDuplicate(j.settleWith(r, entry), overtaken)
}

// settleWith ends a request that has claimed the key, by the entry of another run. It settles the key with the entry's
// record, so that the next duplicate need not ask the journal. Without such a record it releases the key.
func (j *journaled) settleWith(r *Run, entry journal.Entry) Result {
	result := r.guard.byEntry(&r.Request, &entry)
	if r.lease == nil || !canSettle(&entry) || result.Kind == Unreadable {
		r.releaseInBackground()
		return result
	}
	result.Err = errors.Join(result.Err, r.lease.Settle(r.detached(), entry.Record, entry.Left))
	return result
}

// endInBackground sends an End until it succeeds, and then updates the key, which stays claimed until then. cause is
// why the End has not succeeded yet. The error that it returns is for the observer: it wraps cause and
// [lock.ErrPending]. If there is no room for the record, a tombstone takes its place. If there is none for that either, it
// leaves the key instead, and returns cause unchanged.
func (j *journaled) endInBackground(r *Run, d *decision, cause error) error {
	g, run, lease := r.guard, j.run, r.lease
	encoded, keep, completed := d.encoded, d.retention, r.completed
	free := g.ask.reserve(encoded)
	if free == nil && d.storesRecord() {
		short := d.shorten()
		encoded = r.encode(&short)
		free = g.ask.reserve(encoded)
	}
	if free == nil {
		r.leave()
		return cause
	}
	g.locker.Go(func(ctx context.Context) {
		defer free()
		limit := journalRetry
		if encoded != nil {
			limit = min(limit, keep)
		}
		entry, ended := g.ask.retry(ctx, limit, func(ctx context.Context) (journal.Entry, error) {
			return g.Journal.End(ctx, run, encoded, keep-time.Since(completed))
		})
		if entry.Note != nil {
			if _, err := g.readNote(run.Key, &entry); err != nil {
				entry.Record = nil // not for Redis: the journal answers a retry
			}
		}
		follow(ctx, lease, entry, ended, encoded == nil)
	})
	return fmt.Errorf("%w; %w", cause, lock.ErrPending)
}

// follow applies to the key, if there is a lease, the entry that a retried End has returned. ended is false if no End has
// succeeded. frees is true if End was to free the row. After an error the background retries Settle and Release, so
// their errors are dropped.
func follow(ctx context.Context, lease *lock.Lease, entry journal.Entry, ended, frees bool) {
	switch {
	case lease == nil:
	case !ended: // the outcome is unknown: the lease runs out
		lease.Abandon()
	case canSettle(&entry):
		_ = lease.Settle(ctx, entry.Record, entry.Left)
	case frees, entry.State == journal.Done: // Redis has nothing to store: a retry gets the journal's entry
		_ = lease.Release(ctx)
	default: // the journal has no row, or another run's without an outcome: the lease runs out
		lease.Abandon()
	}
}
