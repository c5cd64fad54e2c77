// Package buffer has memory that is used again.
package buffer

import (
	"io"
	"sync"
)

// Buffer is bytes in memory that is used again. It is freed only where it is certain that nobody can have it any more: one
// request must never see what is another's. In all other cases it is left to the garbage collector.
type Buffer struct {
	b    []byte
	lent bool
}

// MaxKept is how many bytes are worth keeping.
const MaxKept = 80 << 10

var buffers = sync.Pool{New: func() any { return new(Buffer) }}

// New returns an empty Buffer.
func New() *Buffer { return buffers.Get().(*Buffer) }

// Bytes returns what is in b, which may be nil.
func (b *Buffer) Bytes() []byte {
	if b == nil {
		return nil
	}
	return b.b[:len(b.b):len(b.b)] // behind that are others'
}

// Append appends p. It makes no more room than limit, unless there is more than that.
func (b *Buffer) Append(p []byte, limit int) { b.b = append(grow(b.b, len(p), limit), p...) }

// Truncate discards all but the first n bytes of b, which may be nil if n is 0.
func (b *Buffer) Truncate(n int) {
	if b != nil {
		b.b = b.b[:n]
	}
}

// ReadAll appends what [io.ReadAll] would return, which is expected to have limit bytes at most. After an error the Buffer
// is as it was.
func (b *Buffer) ReadAll(r io.Reader, limit int) error {
	read, err := readAll(b.b, r, limit)
	if err == nil {
		b.b = read
	}
	return err
}

// SetLent says whether somebody may have kept what is in b: it is then not used again.
func (b *Buffer) SetLent(lent bool) { b.lent = lent }

// Free lets others use b, which may be nil.
func (b *Buffer) Free() {
	if b == nil || b.lent || cap(b.b) > MaxKept {
		return
	}
	b.b = b.b[:0]
	buffers.Put(b)
}

// grow returns b with room for n bytes more. It doubles the room, so that many small steps cost little, but stops at
// the limit on the way: append would make a full buffer up to twice as large as what is in it.
func grow(b []byte, n, limit int) []byte {
	const least = 512
	need := len(b) + n
	if need <= cap(b) {
		return b
	}
	room := max(2*cap(b), least)
	if need <= limit {
		room = min(room, limit)
	}
	larger := make([]byte, len(b), max(need, room))
	copy(larger, b)
	return larger
}

// readAll appends to b what [io.ReadAll] would return, which is expected to have limit bytes at most.
func readAll(b []byte, r io.Reader, limit int) ([]byte, error) {
	for {
		b = grow(b, 1, limit+1) // one more, to see the end
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		}
	}
}
