package store

import (
	"crypto/sha256"
	"encoding/hex"
)

// Namespace is the first part of every key of a Locker.
type Namespace string

// Key is a key as Redis has it.
type Key struct {
	Text string
	arg  any // Text, as the argument of every command: converted once, which allocates
}

// Key returns "namespace:{tag}hash": the hash is the SHA-256 of key in hex, and the tag its first 14 bits in hex.
func (n Namespace) Key(key string) Key {
	var room [256]byte // avoids allocations for most keys
	sum := sha256.Sum256(append(room[:0], key...))
	text := string(hex.AppendEncode(n.appendTag(room[:0], sum[0], sum[1]), sum[:]))
	return Key{Text: text, arg: text}
}

// appendTag appends "namespace:{tag}", where b0 and b1 are the first two bytes of a key's hash.
func (n Namespace) appendTag(k []byte, b0, b1 byte) []byte {
	const digits = "0123456789abcdef"
	tag := (uint16(b0)<<8 | uint16(b1)) >> 2
	k = append(k, n...)
	return append(k, ':', '{', digits[tag>>12], digits[tag>>8&0xf], digits[tag>>4&0xf], digits[tag&0xf], '}')
}

// fence returns the key of the fence counter, "namespace:{tag}fence". All keys with one tag share a counter. So there
// are at most 2^14 counters, and they need not expire.
func (n Namespace) fence(key Key) string {
	return key.Text[:len(n)+len(":{0123}")] + "fence"
}
