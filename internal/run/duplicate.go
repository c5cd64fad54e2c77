package run

import (
	"context"
	"errors"
	"time"

	"github.com/onceguard/onceguard/internal/record"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// Why a duplicate gets no record, or had to wait.
var (
	errAbandoned      = errors.New("onceguard: an earlier run has left its key without an outcome, or its process died")
	errNoOutcome      = errors.New("onceguard: an earlier run ended with an unknown outcome, and is not repeated")
	errUnfinished     = errors.New("onceguard: the journal has an earlier run without an outcome, whose time is over")
	errTooManyWaiting = errors.New("onceguard: too many are waiting, or too many for this key (WithWait)")
)

// byRedis returns what follows from what the key holds: a record, another run's claim, or nothing. The State is Free only
// after a wait for a run that left no record, and for a key that is too old.
func (g *Guard) byRedis(req *Request, found *lock.Claim) Result {
	switch {
	case found.State == lock.Settled:
		return g.byRecord(req, found.Value)
	case found.State == lock.Free && req.TooOld:
		return refuse(Expired, nil)
	case found.State == lock.Free:
		return refuse(NoRecord, nil)
	}
	theirs, err := g.Codec.DecodeNote(req.StorageKey, found.Note)
	switch {
	case err != nil:
		return refuse(Unreadable, err)
	case req.compare(theirs.Fingerprint) == different:
		return reused(First{Running: found.State == lock.Held})
	case found.State == lock.Abandoned:
		return refuse(Unknown, errAbandoned)
	}
	return g.inFlight(found.ClaimedAt, nil)
}

// ifNoRow returns what follows from what the key holds if the journal has no row of the key. That is what byRedis returns,
// but for one case: the claim is abandoned, and its note says that its run has the journal. That run died before it had a
// row, or its row was freed, or its transaction cannot be committed beside the next one's. So nothing that the journal
// protects has happened, and the next request may run. A claim that a run without the journal has left stays: its outcome
// is unknown.
func (g *Guard) ifNoRow(req *Request, found *lock.Claim) Result {
	result := g.byRedis(req, found)
	if g.Journal == nil || found.State != lock.Abandoned || result.Kind != Unknown {
		return result
	}
	switch theirs, err := g.Codec.DecodeNote(req.StorageKey, found.Note); {
	case err != nil || !theirs.Journaled:
		return result
	case req.TooOld:
		return refuse(Expired, nil)
	}
	return refuse(NoRecord, nil)
}

// inFlight returns the result of a duplicate of a run that has claimed the key at that time. RetryAfter is the age of the
// claim, so that a client that obeys it doubles its pause with each try. It is at least 1 s. It is at most one lease,
// because a run that died keeps its duplicates in flight for no longer than that. The bounds also limit an age that is
// wrong because two clocks differ.
func (g *Guard) inFlight(claimedAt time.Time, err error) Result {
	r := refuse(InFlight, err)
	r.claimedAt = claimedAt
	r.RetryAfter = max(time.Second, min(time.Since(claimedAt), g.locker.TTL()).Truncate(time.Second))
	return r
}

// byRecord returns what follows from a stored record.
func (g *Guard) byRecord(req *Request, value []byte) Result {
	r, err := g.Codec.Decode(req.StorageKey, value)
	if err != nil {
		return refuse(Unreadable, err)
	}
	result := Result{Kind: Stored, Outcome: OutcomeReplayed, Record: r, Size: len(value)}
	switch alike := req.compare(r.Fingerprint); {
	case alike == different:
		return reused(First{Ended: r.Completed.UTC()})
	case alike == incomparable:
		return refuse(FingerprintChanged, nil)
	case r.Tombstone && r.Unknown:
		return refuse(UnknownNotKept, errNoOutcome)
	case r.Tombstone:
		result = refuse(NotKept, nil)
		result.Record = r
	}
	return result
}

// byEntry returns what follows from what the journal holds of another run. If the entry's record has no fingerprint, it
// gets that of the entry's note.
func (g *Guard) byEntry(req *Request, entry *journal.Entry) Result {
	if entry.State == journal.Absent { // the row of this run was removed before its End
		return refuse(Unknown, nil)
	}
	if entry.State != journal.Done || entry.Note != nil {
		theirs, err := g.readNote(req.StorageKey, entry)
		if err != nil {
			return refuse(Unreadable, err)
		}
		if req.compare(theirs.Fingerprint) == different && entry.Record == nil { // else byRecord knows when it ended
			return reused(First{Running: entry.State == journal.Running})
		}
	}
	switch {
	case entry.Record != nil:
		return g.byRecord(req, entry.Record)
	case entry.State == journal.Done:
		return refuse(NotKept, nil)
	case entry.State == journal.Unfinished:
		return g.unfinished(entry.Age)
	}
	r := g.inFlight(time.Now().Add(-entry.Age), nil)
	r.rowInJournal = true
	return r
}

// readNote returns the entry's note. If the entry has a record, which then has no fingerprint, it gets that of the note.
func (g *Guard) readNote(key string, entry *journal.Entry) (record.Note, error) {
	note, err := g.Codec.DecodeNote(key, entry.Note)
	if err != nil || entry.Record == nil {
		return note, err
	}
	r, err := g.Codec.Decode(key, entry.Record)
	if err != nil {
		return note, err
	}
	r.Fingerprint = note.Fingerprint
	entry.Record = g.Codec.Append(make([]byte, 0, r.Room()), key, &r)
	return note, nil
}

// unfinished returns the result of a duplicate of a run that has no outcome, and whose row has that age. Sooner or later a
// sweep or the run itself ends the row, so the client may retry. A client that obeys RetryAfter doubles its pause with
// each retry. A row that is older than the retention was forgotten by its operators.
func (g *Guard) unfinished(age time.Duration) Result {
	if age >= g.Retention {
		return refuse(Unknown, errUnfinished)
	}
	r := refuse(UnknownYet, errUnfinished)
	r.RetryAfter = max(minUnknownPause, min(age, maxUnknownPause)).Truncate(time.Second)
	return r
}

const (
	minUnknownPause = 30 * time.Second
	maxUnknownPause = 5 * time.Minute
)

// lookInJournal returns what follows from the journal's entry, or fallback if the journal has none. It is for a key of
// which Redis has no record, or cannot confirm it. Redis may have lost a run that has not ended.
func (g *Guard) lookInJournal(req *Request, fallback Result) Result {
	start := time.Now()
	result := g.byJournal(req, fallback)
	if g.Journal != nil {
		req.Phases.Journal = PhaseSince(start)
	}
	return result
}

// byJournal is lookInJournal as a part of another phase.
func (g *Guard) byJournal(req *Request, fallback Result) Result {
	if g.Journal == nil {
		return fallback
	}
	entry, err := g.ask.look(req.detached(), req.StorageKey)
	switch {
	case err != nil:
		return refuse(Unavailable, err)
	case entry.State == journal.Absent:
		return fallback
	}
	return g.byEntry(req, &entry)
}

// Wait waits until the run that has the key has ended, if Policy.Wait allows it, and returns what a duplicate then gets.
// It never begins a run, even if the other run left no record: a retry may begin one. inFlight is what Begin has
// returned, and what Wait returns if the time is over, or ctx ends, or too many are waiting.
func (g *Guard) Wait(ctx context.Context, r *Run, inFlight Result) Result {
	req := &r.Request
	if g.Policy.Wait == 0 {
		return inFlight
	}
	result := inFlight
	err := g.waitTurn(ctx, req, func(ctx context.Context) (err error) {
		if !result.rowInJournal {
			result, err = g.waitForClaim(ctx, req)
		}
		if err == nil && result.rowInJournal { // without Redis, or when the lease has ended before the run
			result, err = g.waitForRow(ctx, req)
		}
		return err
	})
	switch {
	case errors.Is(err, lock.ErrSettled), errors.Is(err, lock.ErrForeign), errors.Is(err, lock.ErrClosed):
		return unclaimed(err)
	case err != nil:
		return g.inFlight(inFlight.claimedAt, waitFailure(err))
	}
	return result
}

// waitForClaim waits until the claim in Redis has ended, and returns what follows from what the key and the journal then
// hold.
func (g *Guard) waitForClaim(ctx context.Context, req *Request) (Result, error) {
	found, err := g.locker.Wait(ctx, req.Key)
	if err != nil {
		return Result{}, err
	}
	if found.State == lock.Abandoned || found.State == lock.Free {
		return g.byJournal(req, g.ifNoRow(req, &found)), nil
	}
	return g.byRedis(req, &found), nil
}

// waitForRow waits until the run has ended whose row the journal has, and returns what follows from the entry.
func (g *Guard) waitForRow(ctx context.Context, req *Request) (Result, error) {
	entry, err := g.ask.poll(ctx, req.StorageKey)
	switch {
	case err != nil:
		return Result{}, err
	case entry.State == journal.Absent:
		return g.byRedis(req, &lock.Claim{State: lock.Free}), nil
	}
	return g.byEntry(req, &entry), nil
}

// waitTurn calls wait with a context that ends when the time to wait is over. If too many are waiting, it returns
// errTooManyWaiting at once.
func (g *Guard) waitTurn(ctx context.Context, req *Request, wait func(context.Context) error) error {
	if !g.waiting.enter(req.StorageKey, g.MaxWaiters) {
		return errTooManyWaiting
	}
	defer g.waiting.exit(req.StorageKey)
	start := time.Now()
	deadline := start.Add(g.Policy.Wait)
	if by := req.AnswerBy; !by.IsZero() && by.Before(deadline) {
		deadline = by
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	err := wait(ctx)
	req.Phases.Wait = PhaseSince(start)
	return err
}

// waitFailure returns the observer's error for a wait that ended with err. It is nil if only the deadline had passed,
// or the caller has gone.
func waitFailure(err error) error {
	var wait *lock.WaitError
	switch {
	case errors.As(err, &wait):
		return wait.Look
	case errors.Is(err, errTooManyWaiting):
		return err
	}
	return nil
}
