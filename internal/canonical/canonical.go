// Package canonical writes what identifies a request into a hash, so that requests which are the
// same by HTTP's own rules hash alike and no others do. Every field is written with its length before
// it: bytes cannot wander from one field into the next.
//
// What it writes is stored, by its hash, as long as responses are kept. A change to it is a new version of
// whatever is built on it.
package canonical

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"net/http"
	"sync"
)

// Hash is a SHA-256 of fields. It gathers the short ones before it hashes them, and is used again by others after Sum.
type Hash struct {
	sha hash.Hash
	buf []byte // not hashed yet
}

var hashes = sync.Pool{New: func() any { return &Hash{sha: sha256.New()} }}

// NewHash returns one without a field. It need not be given back.
func NewHash() *Hash { return hashes.Get().(*Hash) }

// Sum returns the hash of all fields. The Hash must not be used any more.
func (h *Hash) Sum() (sum [sha256.Size]byte) {
	const kept = 4 << 10 // a longer buffer is not worth keeping
	h.flush()
	h.buf = h.sha.Sum(h.buf) // sum itself would escape to the heap
	copy(sum[:], h.buf)
	if cap(h.buf) <= kept {
		h.sha.Reset()
		h.buf = h.buf[:0]
		hashes.Put(h)
	}
	return sum
}

// Field writes the length of s, as 8 bytes in big-endian order, and s.
func (h *Hash) Field(s string) {
	h.number(len(s))
	h.buf = append(h.buf, s...)
}

// FieldBytes writes what Field would, without a copy.
func (h *Hash) FieldBytes(b []byte) {
	h.number(len(b))
	h.flush()
	h.sha.Write(b)
}

// Route writes what AppendRoute appends, as a field.
func (h *Hash) Route(r *http.Request) {
	h.number(0)
	start := len(h.buf)
	h.buf = AppendRoute(h.buf, r)
	binary.BigEndian.PutUint64(h.buf[start-8:], uint64(len(h.buf)-start))
}

func (h *Hash) number(n int) {
	const enough = 1 << 10
	if len(h.buf) >= enough {
		h.flush()
	}
	h.buf = binary.BigEndian.AppendUint64(h.buf, uint64(n))
}

func (h *Hash) flush() {
	h.sha.Write(h.buf)
	h.buf = h.buf[:0]
}
