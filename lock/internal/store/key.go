package store

import (
	"crypto/sha256"
	"encoding/hex"
)

// Namespace is what all keys of a service begin with.
type Namespace string

// Key is a key as it stands in Redis. As an argument it is made once, for all commands.
type Key struct {
	Text string
	arg  any
}

// Key returns "namespace:{tag}hash": the hash is the SHA-256 of key in hex, and the tag its first 14 bits in hex.
func (n Namespace) Key(key string) Key {
	var room [256]byte // of most keys, raw and hashed
	sum := sha256.Sum256(append(room[:0], key...))
	text := string(hex.AppendEncode(n.appendTag(room[:0], sum[0], sum[1]), sum[:]))
	return Key{Text: text, arg: text}
}

// appendTag appends what all keys begin with that share the first 14 bits of their hash.
func (n Namespace) appendTag(k []byte, b0, b1 byte) []byte {
	const digits = "0123456789abcdef"
	tag := (uint16(b0)<<8 | uint16(b1)) >> 2
	k = append(k, n...)
	return append(k, ':', '{', digits[tag>>12], digits[tag>>8&0xf], digits[tag>>4&0xf], digits[tag&0xf], '}')
}

// fence returns the key of a counter: one for all keys with the same tag, so that counters do not pile up with the keys,
// and need not expire.
func (n Namespace) fence(key Key) string {
	return key.Text[:len(n)+len(":{0123}")] + "fence"
}
