package sqljournal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
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
// happened, such as the number of the order: the key is only a hash. The note goes when the run ends. It is stored as it is, also with
// [middleware.WithEncryption].
//
// Call it before the effect, outside of InTx, and heed its error. After [ErrLost] a sweep has handed the row out already:
// the handler must not take effect, and the client gets 409 whatever it answers. Note fails in a run of a transactional
// journal, which has no row. In a run without a journal, and outside of a run, it does nothing.
func (j *Journal) Note(ctx context.Context, b []byte) error {
	if len(b) > MaxNote {
		return errNoteTooLong
	}
	x, err := j.executionHere(ctx)
	if x == nil {
		return err
	}
	run, _, _ := x.Journaled()
	if !run.Intent {
		return errNoIntent
	}
	n, err := changed(j.db.ExecContext(ctx, j.dialect.note, run.Key, run.Token, joinNote(run.Note, b)))
	if err == nil && n != 1 {
		err = ErrLost
	}
	if err != nil {
		return fmt.Errorf("sqljournal: note: %w", err)
	}
	return nil
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
