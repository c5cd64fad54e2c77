package run

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/journal"
	"github.com/onceguard/onceguard/lock"
)

// asker calls a Guard's journal. A caller waits for one call no longer than journalTimeout, if the driver obeys the
// context. What the journal cannot do at once is retried in the background, for journalRetry at most.
type asker struct {
	journal journal.Journal // nil: none
	locker  *lock.Locker    // whose Close waits for the background

	records *background.Room  // bytes of records that wait for the journal, without those in small
	small   *background.Room  // bytes of those that have at most maxSmallRecord
	undoing *background.Room  // runs in undoBegin
	turns   *background.Turns // of those that retry
}

const (
	journalTimeout    = 3 * time.Second // for one call
	journalRetry      = time.Hour       // how long to retry the undoing of a Begin, or an End
	journalTurns      = 4               // tries in the background at the same time
	maxPendingRecords = 64 << 20        // bytes of records that wait for the journal; as much for small ones
	maxSmallRecord    = 1 << 10         // bytes
	pendingCost       = 16 << 10        // added to the size of each record
	maxUndone         = 4096            // runs whose Begin is being undone
)

func newAsker(j journal.Journal, locker *lock.Locker) asker {
	return asker{
		journal: j, locker: locker,
		records: background.NewRoom(maxPendingRecords), small: background.NewRoom(maxPendingRecords),
		undoing: background.NewRoom(maxUndone), turns: background.NewTurns(journalTurns, journalTimeout),
	}
}

// inTime calls f with a context that ends after journalTimeout.
func inTime(ctx context.Context, f func(context.Context) (journal.Entry, error)) (journal.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	return f(ctx)
}

func (a *asker) look(ctx context.Context, key string) (journal.Entry, error) {
	return inTime(ctx, func(ctx context.Context) (journal.Entry, error) { return a.journal.Look(ctx, key) })
}

func (a *asker) end(ctx context.Context, run journal.Run, record []byte, keep time.Duration) (journal.Entry, error) {
	return inTime(ctx, func(ctx context.Context) (journal.Entry, error) { return a.journal.End(ctx, run, record, keep) })
}

// begin calls Begin. If that fails, it calls Begin once more: the reply may have been lost, and the same token gets the
// same entry. If that fails too, the row that a Begin may have left is to be freed: see undoBegin.
func (a *asker) begin(ctx context.Context, run journal.Run) (journal.Entry, error) {
	begin := func(ctx context.Context) (journal.Entry, error) { return a.journal.Begin(ctx, run) }
	entry, err := inTime(ctx, begin)
	if err != nil {
		entry, err = inTime(ctx, begin)
	}
	return entry, err
}

// undoBegin frees, in the background, a row that a failed Begin may have left. It does so twice, because a Begin whose
// connection broke may arrive after the first time.
//
// If too many are being undone, it does nothing: a recovering database must not get one call for each request that it
// has missed. A leftover row only refuses retries until it is swept.
func (a *asker) undoBegin(run journal.Run) {
	free := a.undoing.Take(1)
	if free == nil {
		return
	}
	a.locker.Go(func(ctx context.Context) {
		defer free()
		undo := func(ctx context.Context) (journal.Entry, error) { return a.journal.End(ctx, run, nil, 0) }
		if _, ok := a.retry(ctx, journalRetry, undo); ok && background.Pause(ctx, journalTimeout) == nil {
			a.retry(ctx, journalRetry, undo)
		}
	})
}

// retry calls try as [background.Turns.Retry] does, until try returns no error or the limit has passed. It returns the
// last entry, and whether try has returned no error.
func (a *asker) retry(
	ctx context.Context, limit time.Duration, try func(context.Context) (journal.Entry, error),
) (entry journal.Entry, ok bool) {
	a.turns.Retry(ctx, time.Now().Add(limit), func() (done, answered bool) {
		var err error
		entry, err = inTime(context.WithoutCancel(ctx), try)
		ok = err == nil
		return ok, errors.Is(err, journal.ErrHandedOut)
	})
	return entry, ok
}

// reserve takes the room of a record that waits for the journal, and returns a function that frees it, or nil if there is
// too little. Small records have their own, which large ones do not take from them.
func (a *asker) reserve(record []byte) (free func()) {
	room := a.records
	if len(record) <= maxSmallRecord {
		room = a.small
	}
	return room.Take(int64(len(record) + pendingCost))
}

// poll looks at the row until its run has ended. If ctx ends first, the error is a [lock.WaitError].
func (a *asker) poll(ctx context.Context, key string) (journal.Entry, error) {
	var last error // of the last look that ctx has not ended
	for pauses := (background.Backoff{}); background.Pause(ctx, pauses.Next()) == nil; {
		entry, err := a.look(ctx, key)
		if ctx.Err() != nil {
			break
		}
		if err == nil && entry.State != journal.Running {
			return entry, nil
		}
		last = err
	}
	return journal.Entry{}, &lock.WaitError{Err: ctx.Err(), Look: last}
}

// isOurEnd reports whether the entry that End returned is the one that End was to leave: the record or, without a
// record, nothing. The token is not enough: an operator ends the row with the run's token.
func isOurEnd(entry journal.Entry, run journal.Run, encoded []byte) bool {
	if encoded == nil {
		return entry.State == journal.Absent
	}
	return entry.State == journal.Done && entry.Token == run.Token && bytes.Equal(entry.Record, encoded)
}

// canSettle reports whether the entry has a record that Redis can store. Settle refuses one that is about to expire,
// and would leave the key claimed.
func canSettle(e *journal.Entry) bool {
	return e.State == journal.Done && e.Record != nil && e.Left >= time.Millisecond
}
