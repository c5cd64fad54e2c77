// The idempotency keys of the requests.

package main

import (
	"encoding/binary"
	"encoding/hex"
)

// keyLength is the length of every key in bytes: fiber takes no other.
const keyLength = 36

// keyText returns n keys in one string: those of the caller that are numbered from first on.
func keyText(caller, first, n int) string {
	text := make([]byte, 0, n*keyLength)
	raw := make([]byte, keyLength/2)
	for i := range n {
		binary.BigEndian.PutUint64(raw[2:], uint64(caller))
		binary.BigEndian.PutUint64(raw[10:], uint64(first+i))
		text = hex.AppendEncode(text, raw)
	}
	return string(text)
}

// keys is a caller's sequence of unused keys. They are cut from longer texts, so that a measurement does not count their
// allocations.
type keys struct {
	caller, next int
	text         string
}

func (k *keys) fresh() string {
	const block = 64
	if k.text == "" {
		k.text = keyText(k.caller, k.next, block)
		k.next += block
	}
	key := k.text[:keyLength]
	k.text = k.text[keyLength:]
	return key
}
