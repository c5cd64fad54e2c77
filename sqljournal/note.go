package sqljournal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/onceguard/onceguard/middleware"
)

// MaxNote is the longest note that [Journal.Note] takes, in bytes.
const MaxNote = 4096

// Errors of [Journal.Note].
var (
	errNoteTooLong = fmt.Errorf("sqljournal: note: longer than %d bytes", MaxNote)
	errNoIntent    = errors.New("sqljournal: note: the run has no row")
	errDamagedNote = errors.New("a row has a damaged note")
)

// Note stores b, at most [MaxNote] bytes, beside the row of the intent run that ctx belongs to, in place of an earlier
// note. [Journal.Sweep] hands it out if the run does not come to an end. Store in it what it takes to find out what has
// happened, such as the number of the order: the key is only a hash. The note goes when the run ends.
//
// Call it before the effect and heed its error: it is [middleware.ErrAnswered] if a sweep has handed the row out already.
// Note fails in a run of a transactional journal, which has no row, and within [Journal.InTx]. Outside of a protected run
// it does nothing.
func (j *Journal) Note(ctx context.Context, b []byte) error {
	if len(b) > MaxNote {
		return errNoteTooLong
	}
	x := j.executionOf(ctx)
	if x == nil {
		return nil
	}
	// Only Transact knows the run. It passes the run to the function that it asks after a failed transaction, so this one
	// fails before it begins.
	failed := errors.New("sqljournal: note: the run cannot take a note now")
	noted := failed
	err := x.Transact(
		func(func() (middleware.Commit, error)) error { return failed },
		func(run middleware.JournalRun, _ bool) (e middleware.JournalEntry, err error) {
			e, noted = j.storeNote(ctx, run, b)
			return e, nil
		})
	if errors.Is(err, failed) {
		return noted
	}
	return err
}

// storeNote answers what stands after it. If that is not known, it answers what the run's Begin did.
func (j *Journal) storeNote(ctx context.Context, run middleware.JournalRun, b []byte) (middleware.JournalEntry, error) {
	if !run.Intent {
		return middleware.JournalEntry{}, errNoIntent
	}
	own := middleware.JournalEntry{State: middleware.Begun, Token: run.Token, Note: run.Note}
	n, err := changed(j.db.ExecContext(ctx, j.dialect.note, run.Key, run.Token, joinNote(run.Note, b)))
	if err != nil {
		return own, fmt.Errorf("sqljournal: note: %w", err)
	}
	if n == 1 {
		return own, nil
	}
	e, err := j.look(ctx, run.Key, run.Token)
	if err != nil {
		return own, fmt.Errorf("sqljournal: note: %w", err)
	}
	return e, errNoIntent
}

// joinNote encodes the column note: the length of the middleware's part as a varint, that part, and the handler's part.
func joinNote(middlewares, handlers []byte) []byte {
	b := make([]byte, 0, binary.MaxVarintLen64+len(middlewares)+len(handlers))
	b = binary.AppendUvarint(b, uint64(len(middlewares)))
	b = append(b, middlewares...)
	return append(b, handlers...)
}

// splitNote undoes joinNote. A part that is empty is nil.
func splitNote(b []byte) (middlewares, handlers []byte, _ error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, errDamagedNote
	}
	b = b[size:]
	if n > 0 {
		middlewares = b[:n:n]
	}
	if n < uint64(len(b)) {
		handlers = b[n:]
	}
	return middlewares, handlers, nil
}
