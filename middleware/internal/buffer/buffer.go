// Package buffer pools the memory of bodies and of stored records.
package buffer

import (
	"io"
	"sync"
)

// Buffer is bytes in pooled memory, for one goroutine. One request must never see the bytes of another. So Free is
// called only when nothing can refer to the Buffer any more; otherwise it is left to the garbage collector.
type Buffer struct {
	b    []byte
	lent bool // see SetLent
}

// MaxKept is the capacity in bytes up to which a Buffer returns to the pool.
const MaxKept = 80 << 10

var buffers = sync.Pool{New: func() any { return new(Buffer) }}

// New returns an empty Buffer.
func New() *Buffer { return buffers.Get().(*Buffer) }

// Bytes returns the bytes of b, which may be nil. They are valid until b is freed.
func (b *Buffer) Bytes() []byte {
	if b == nil {
		return nil
	}
	return b.b[:len(b.b):len(b.b)] // an append to it must not write into b
}

// Append appends p. The capacity of b grows to limit at most, unless b needs more.
func (b *Buffer) Append(p []byte, limit int) { b.b = append(grow(b.b, len(p), limit), p...) }

// Truncate discards all but the first n bytes of b, which may be nil if n is 0.
func (b *Buffer) Truncate(n int) {
	if b != nil {
		b.b = b.b[:n]
	}
}

// ReadAll appends all of r, which should be at most limit bytes.
func (b *Buffer) ReadAll(r io.Reader, limit int) error {
	for {
		b.b = grow(b.b, 1, limit+1) // one more than limit, for the Read that returns io.EOF
		n, err := r.Read(b.b[len(b.b):cap(b.b)])
		b.b = b.b[:len(b.b)+n]
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// SetLent sets whether other code may still use the bytes of b. Then Free does nothing.
func (b *Buffer) SetLent(lent bool) { b.lent = lent }

// Free returns b, which may be nil, to the pool.
func (b *Buffer) Free() {
	if b == nil || b.lent || cap(b.b) > MaxKept {
		return
	}
	b.b = b.b[:0]
	buffers.Put(b)
}

// grow returns b with room for n more bytes. It doubles the capacity, so that many small steps cost little, but not
// past limit if that is enough. The built-in append would make a full buffer up to twice as large as its content.
func grow(b []byte, n, limit int) []byte {
	const minimum = 512
	need := len(b) + n
	if need <= cap(b) {
		return b
	}
	room := max(2*cap(b), minimum)
	if need <= limit {
		room = min(room, limit)
	}
	larger := make([]byte, len(b), max(need, room))
	copy(larger, b)
	return larger
}
