package run

import (
	"bytes"
	"context"
	"math/rand/v2"
	"time"

	"github.com/onceguard/onceguard/journal"
)

const (
	journalTimeout = 3 * time.Second  // for one call to a journal
	journalPause   = 30 * time.Second // the longest pause between two tries in the background
)

// ask calls f with a context that ends after journalTimeout.
func ask(ctx context.Context, f func(context.Context) (journal.Entry, error)) (journal.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	return f(ctx)
}

// retry calls try after growing pauses, until try returns nil or the limit has passed. If ctx ends first, it calls try
// once more. It reports whether try has returned nil.
func retry(ctx context.Context, limit time.Duration, try func(context.Context) error) bool {
	deadline := time.Now().Add(limit)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, journalPause) {
		last := !sleep(ctx, pause/2+rand.N(pause/2))
		if !time.Now().Before(deadline) {
			return false
		}
		tryCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), journalTimeout)
		err := try(tryCtx)
		cancel()
		if err == nil || last {
			return err == nil
		}
	}
}

// sleep pauses for d. It reports false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// isOurEnd reports whether the entry that End returned is the one that End was to leave: the record or, without a
// record, nothing.
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
