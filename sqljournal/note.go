package sqljournal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
)

// maxNote is the longest note that [Journal.Note] takes, in bytes.
const maxNote = 4096

// Errors of [Journal.Note].
var (
	errNoteTooLong = fmt.Errorf("sqljournal: note: longer than %d bytes", maxNote)
	errNoIntent    = errors.New("sqljournal: note: the run has no row")
	errDamagedNote = errors.New("a row has a damaged note")
)

// Note stores b, at most 4,096 bytes, in the row of the intent run that ctx belongs to. It replaces an earlier
// note. If the run remains unfinished, [Journal.Sweep] hands the note out. The key is only a hash, so store in the note
// what is needed to find out what happened, such as the number of the order. The note is removed when the run ends. It
// is never encrypted, not even with middleware.WithEncryption.
//
// Call it before the effect, outside of InTx, and do not go on if it fails. [ErrLost] means that a sweep has already
// handed the row out: the handler must not take effect, and the client gets 409, whatever the handler writes. Note fails
// in a run of a transactional journal, which has no row. In a run without a journal, and outside of a run, it does
// nothing.
func (j *Journal) Note(ctx context.Context, b []byte) error {
	if len(b) > maxNote {
		return errNoteTooLong
	}
	run, ok, err := j.runHere(ctx)
	switch {
	case !ok:
		return err
	case !run.Intent:
		return errNoIntent
	}
	n, err := j.dialect.exec(ctx, j.db, j.dialect.note, run.Key, run.Token, joinNote(run.Note, b))
	return expectOneRow("note", n, err)
}

// joinNote encodes the column note: the length of the middleware's part as a varint, that part, and the handler's part.
func joinNote(ofMiddleware, ofHandler []byte) []byte {
	b := make([]byte, 0, binary.MaxVarintLen64+len(ofMiddleware)+len(ofHandler))
	b = binary.AppendUvarint(b, uint64(len(ofMiddleware)))
	b = append(b, ofMiddleware...)
	return append(b, ofHandler...)
}

// splitNote undoes joinNote. An empty part is nil.
func splitNote(b []byte) (ofMiddleware, ofHandler []byte, _ error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, errDamagedNote
	}
	b = b[size:]
	if n > 0 {
		ofMiddleware = b[:n:n]
	}
	if n < uint64(len(b)) {
		ofHandler = b[n:]
	}
	return ofMiddleware, ofHandler, nil
}
