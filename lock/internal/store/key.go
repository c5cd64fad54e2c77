package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
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

// How an operator's names are parsed: a key as a log or a problem response has it, and the claim or value that the
// operator has inspected.

// ErrNotStorageKey is the error of a text that is no key of the namespace. Package lock exports and documents it.
var ErrNotStorageKey = errors.New("lock: this is not a storage key of the locker")

// keyURN begins a key in the "instance" of a problem response. The rest is the hash.
const keyURN = "urn:onceguard:key:"

// hashLen is the length of a key's hash: a SHA-256 in hex.
const hashLen = 64

// ParseKey returns the key that text names: "namespace:{tag}hash", "urn:onceguard:key:hash", or the hash alone. The
// error does not repeat text, which may be a caller's raw key.
func (n Namespace) ParseKey(text string) (Key, error) {
	hash, isWhole := text, strings.ContainsAny(text, "{}")
	if isWhole {
		_, hash, _ = strings.Cut(text, "}")
	} else if len(text) > len(keyURN) && strings.EqualFold(text[:len(keyURN)], keyURN) { // RFC 8141, section 3.1
		hash = text[len(keyURN):]
	}
	if isWhole && hash == "fence" {
		return Key{}, fmt.Errorf("%w: it is that of a fence counter", ErrNotStorageKey)
	}
	sum, err := hex.DecodeString(hash)
	if err != nil || len(hash) != hashLen {
		return Key{}, fmt.Errorf("%w: it does not end in %d hexadecimal digits", ErrNotStorageKey, hashLen)
	}
	key := string(hex.AppendEncode(n.appendTag(nil, sum[0], sum[1]), sum))
	if isWhole && text != key {
		return Key{}, fmt.Errorf("%w: it has another namespace, or a tag that is not the hash's", ErrNotStorageKey)
	}
	return Key{Text: key, arg: key}, nil
}

// valuePrefix begins the name of a value, so that a claim and the value of the same lease have two names.
const valuePrefix = "value-"

// ValueName returns the name of the value that the lease with that token has settled.
func ValueName(token string) string { return valuePrefix + token }

// nameOf returns the name of a claim or value, given its bytes. ParseName turns the name into the head again.
func nameOf(stored []byte) string {
	token := uuid.UUID(stored[len(claimMagic):headLen]).String()
	if string(stored[:len(valueMagic)]) == valueMagic {
		return ValueName(token)
	}
	return token
}

// ParseName returns the head of the claim or value with that name. A malformed name is ErrChanged, because no key holds
// what it names.
func ParseName(name string) (head []byte, err error) {
	token, isValue := strings.CutPrefix(name, valuePrefix)
	id, err := uuid.Parse(token)
	if err != nil {
		return nil, fmt.Errorf("%w: it is no token that Inspect returns", ErrChanged)
	}
	if isValue {
		return appendHead(nil, valueMagic, id), nil
	}
	return appendHead(nil, claimMagic, id), nil
}
