package run

import (
	"bytes"
	"context"
	"time"

	"github.com/onceguard/onceguard/journal"
)

const (
	journalTimeout = 3 * time.Second // for one call to a journal
	journalTurns   = 4               // tries in the background at the same time
)

// ask calls f with a context that ends after journalTimeout.
func ask(ctx context.Context, f func(context.Context) (journal.Entry, error)) (journal.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	return f(ctx)
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
