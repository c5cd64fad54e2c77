// Package canonical writes down what identifies a request, so that requests which are the same by HTTP's own rules read
// alike and no others do. Every field is written with its length before it: bytes cannot wander from one field into the
// next.
//
// What it writes is stored, by its hash, as long as responses are kept. A change to it is a new version of
// whatever is built on it.
package canonical

import "strconv"

// AppendPart appends the length in decimal, a colon, and the part. A reader that knows only this finds
// the same parts again, which is why a separator between escaped parts was not needed.
func AppendPart[T string | []byte](dst []byte, part T) []byte {
	return append(appendNumber(dst, len(part)), part...)
}

func appendNumber(dst []byte, n int) []byte {
	return append(strconv.AppendInt(dst, int64(n), 10), ':')
}
