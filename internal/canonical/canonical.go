// Package canonical encodes what identifies a request. Two requests have the same encoding if and only if they are the
// same by the rules of HTTP, and for [SumJSON] by those of JSON. Every field is preceded by its length, so that no byte can
// move from one field to the next.
//
// Hashes of the encoding are stored as long as responses are kept. If the encoding changes, so must the version of
// every format that is built on it.
package canonical

import "strconv"

// AppendPart appends the length in decimal, a colon, and the part. That is enough to decode the parts again: no
// separators, no escapes.
func AppendPart[T string | []byte](dst []byte, part T) []byte {
	return append(appendNumber(dst, len(part)), part...)
}

func appendNumber(dst []byte, n int) []byte {
	return append(strconv.AppendInt(dst, int64(n), 10), ':')
}
