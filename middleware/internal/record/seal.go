package record

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
)

// Keyring seals with its first key and opens with any. An element is what HKDF-Extract (RFC 5869 section 2.2, SHA-256,
// no salt) makes of a key that was given.
type Keyring [][]byte

// What is sealed. A note does not open as a record, nor the other way round.
const (
	RecordPurpose = "onceguard record 1 "
	NotePurpose   = "onceguard note 1 "
)

// KeySize is the length of a key, in bytes.
const (
	KeySize      = 32
	sealOverhead = 12 + 16 // nonce and tag
)

// Extract returns the element of a Keyring for a key.
func Extract(key []byte) []byte { return must(hkdf.Extract(sha256.New, key, nil)) }

// Seal puts the seal around all of b but its first n bytes: a random nonce of 12 bytes, the ciphertext, a tag of 16
// bytes. The cipher is AES-256-GCM. Its additional data are what stays visible, whose length the purpose determines,
// and the storage key.
//
// Its key is HKDF-Expand (RFC 5869 section 2.3) of purpose and storage key. With one key for all records, random nonces
// would end after 2^32 of them (NIST SP 800-38D section 8.3); one storage key never sees as many.
func (k Keyring) Seal(purpose, storageKey string, visible, b []byte, n int) []byte {
	return aead(k[0], purpose, storageKey).Seal(b[:n], nil, b[n:], additional(visible, storageKey))
}

// open returns what seal was given. It is a copy: sealed stays as it is, for the next key.
func (k Keyring) open(purpose, storageKey string, visible, sealed []byte) ([]byte, error) {
	room, data := make([]byte, 0, len(sealed)), additional(visible, storageKey)
	for _, key := range k {
		if opened, err := aead(key, purpose, storageKey).Open(room, nil, sealed, data); err == nil {
			return opened, nil
		}
	}
	return nil, errNoKeyOpens
}

func aead(key []byte, purpose, storageKey string) cipher.AEAD {
	derived := must(hkdf.Expand(sha256.New, key, purpose+storageKey, KeySize))
	return must(cipher.NewGCMWithRandomNonce(must(aes.NewCipher(derived))))
}

func additional(visible []byte, storageKey string) []byte {
	return append(append(make([]byte, 0, len(visible)+len(storageKey)), visible...), storageKey...)
}

// must is for functions that fail only on a length or a level that is constant here.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// unseal returns the content without its seal. It is an error when there is none and must be one, or the other way
// round.
func (c *Codec) unseal(sealed bool, purpose, storageKey string, visible, content []byte) ([]byte, error) {
	switch {
	case sealed && len(c.Keys) == 0:
		return nil, errSealed
	case sealed:
		return c.Keys.open(purpose, storageKey, visible, content)
	case len(c.Keys) > 0 && !c.PlaintextReads:
		return nil, errNotSealed
	}
	return content, nil
}
