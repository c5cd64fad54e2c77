package record

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"

	"github.com/onceguard/onceguard/internal/option"
)

// Keyring encrypts with its first key and decrypts with any. Its elements are made by NewKeyring. It is safe for
// concurrent use.
type Keyring [][]byte

// Purposes of an encryption. What was encrypted as a note cannot be decrypted as a record, nor the reverse.
const (
	RecordPurpose = "onceguard record 1 "
	NotePurpose   = "onceguard note 1 "
)

const (
	KeySize            = 32      // of a key, in bytes
	encryptionOverhead = 12 + 16 // nonce and tag
)

// NewKeyring returns a Keyring of copies of the keys. It panics when there is no key, or when a key has another length
// than KeySize. The message names caller, an option.
func NewKeyring(caller string, keys [][]byte) Keyring {
	option.Check(len(keys) != 0, "%s: no key", caller)
	ring := make(Keyring, len(keys))
	for i, key := range keys {
		option.Check(len(key) == KeySize, "%s: key %d has %d bytes, not %d", caller, i+1, len(key), KeySize)
		ring[i] = extract(key)
	}
	return ring
}

// extract returns the element of a Keyring for a key: its HKDF-Extract (RFC 5869 section 2.2, SHA-256, no salt).
func extract(key []byte) []byte { return must(hkdf.Extract(sha256.New, key, nil)) }

// Encrypt encrypts b from its n-th byte on with AES-256-GCM, and returns the first n bytes, a random nonce of 12 bytes,
// the ciphertext, and a tag of 16 bytes. It also authenticates visible and the storage key. The length of visible
// depends only on the purpose.
//
// Its key is HKDF-Expand (RFC 5869 section 2.3) of purpose and storage key. A single key would be limited to 2^32
// random nonces (NIST SP 800-38D section 8.3). A storage key never needs as many.
func (k Keyring) Encrypt(purpose, storageKey string, visible, b []byte, n int) []byte {
	return aead(k[0], purpose, storageKey).Seal(b[:n], nil, b[n:], additional(visible, storageKey))
}

// decrypt returns a copy of what Encrypt was given, or errNoKeyDecrypts. It does not change encrypted, which the next
// key needs.
func (k Keyring) decrypt(purpose, storageKey string, visible, encrypted []byte) ([]byte, error) {
	room, data := make([]byte, 0, len(encrypted)), additional(visible, storageKey)
	for _, key := range k {
		if content, err := aead(key, purpose, storageKey).Open(room, nil, encrypted, data); err == nil {
			return content, nil
		}
	}
	return nil, errNoKeyDecrypts
}

func aead(key []byte, purpose, storageKey string) cipher.AEAD {
	derived := must(hkdf.Expand(sha256.New, key, purpose+storageKey, KeySize))
	return must(cipher.NewGCMWithRandomNonce(must(aes.NewCipher(derived))))
}

func additional(visible []byte, storageKey string) []byte {
	return append(append(make([]byte, 0, len(visible)+len(storageKey)), visible...), storageKey...)
}

// must returns v. It is for functions that fail only on a bad length or level, which are constants here.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// decrypt returns the content, decrypted if it is encrypted. It fails if no key decrypts it, or if it is not encrypted
// although c requires that.
func (c *Codec) decrypt(encrypted bool, purpose, storageKey string, visible, content []byte) ([]byte, error) {
	switch {
	case encrypted && len(c.Keys) == 0:
		return nil, errEncrypted
	case encrypted:
		return c.Keys.decrypt(purpose, storageKey, visible, content)
	case len(c.Keys) > 0 && !c.PlaintextReads:
		return nil, errPlaintext
	}
	return content, nil
}
