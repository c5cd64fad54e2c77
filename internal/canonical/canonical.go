// Package canonical writes what identifies a request into a hash, so that requests which are the
// same by HTTP's own rules hash alike and no others do. Every field is written with its length before
// it: bytes cannot wander from one field into the next.
//
// What it writes is stored, by its hash, as long as responses are kept. A change to it is a new version of
// whatever is built on it.
package canonical

import (
	"encoding/binary"
	"hash"
)

// Field writes the length of s, as 8 bytes in big-endian order, and s.
func Field(h hash.Hash, s string) {
	b := make([]byte, 0, 8+len(s))
	b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
	h.Write(append(b, s...))
}

// FieldBytes writes what Field would, without a copy.
func FieldBytes(h hash.Hash, b []byte) {
	number(h, len(b))
	h.Write(b)
}

func number(h hash.Hash, n int) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	h.Write(b[:])
}
