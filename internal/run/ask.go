package run

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/onceguard/onceguard/journal"
)

const (
	journalTimeout = 3 * time.Second // for one call to a journal
	journalPause   = time.Second     // the longest pause between two tries in the background
	journalTurns   = 4               // tries in the background at the same time
)

// ask calls f with a context that ends after journalTimeout.
func ask(ctx context.Context, f func(context.Context) (journal.Entry, error)) (journal.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	return f(ctx)
}

// turns are taken by those that call a journal in the background.
type turns chan struct{}

// retry calls try after growing pauses, until try returns no error or the limit has passed. If ctx ends first, it calls
// try once more. It returns the last entry, and whether try has returned no error.
//
// Only a few of all that retry have a turn at the same time, so that a database that recovers is not overrun. After a
// failure of the database the turn lasts until the pause is over: during an outage the others wait.
func (t turns) retry(
	ctx context.Context, limit time.Duration, try func(context.Context) (journal.Entry, error),
) (entry journal.Entry, ok bool) {
	deadline := time.Now().Add(limit)
	sleep(ctx, jitter(minPause))
	for pause := minPause; ; {
		endTurn := t.take(ctx)
		last := ctx.Err() != nil
		if !time.Now().Before(deadline) {
			endTurn()
			return entry, false
		}
		var err error
		entry, err = ask(context.WithoutCancel(ctx), try)
		if err == nil || last {
			endTurn()
			return entry, err == nil
		}
		if errors.Is(err, journal.ErrHandedOut) { // the database is well
			endTurn()
			endTurn = func() {}
		}
		pause = min(2*pause, journalPause)
		sleep(ctx, jitter(pause))
		endTurn()
	}
}

// take waits until one of the turns is free. Once ctx has ended, it waits no longer than a call may take, because Close
// waits for all: the caller then goes on without a turn.
func (t turns) take(ctx context.Context) (endTurn func()) {
	endTurn = func() { <-t }
	select {
	case t <- struct{}{}:
		return endTurn
	case <-ctx.Done():
	}
	select {
	case t <- struct{}{}:
		return endTurn
	case <-time.After(journalTimeout):
		return func() {}
	}
}

const minPause = 20 * time.Millisecond

func jitter(pause time.Duration) time.Duration { return pause/2 + rand.N(pause/2) }

// sleep pauses for d. It reports false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
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
