// Package record defines what is stored of a run: the record, which a key holds once the run is over, and the note of a
// claim. A record is an envelope around a payload, such as an HTTP response. Only the payload's door reads the payload.
package record

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// A record is
//
//	version      1 byte
//	checksum     4 bytes, CRC-32C, started from the version, of the storage key and of all bytes after the checksum
//	flags        1 byte; an unknown flag makes the record unreadable
//	content      the rest
//
// With FlagEncrypted the content is a nonce of 12 bytes, a ciphertext and a tag of 16 bytes (see Keyring.Encrypt),
// where version and flags are authenticated and the checksum is not. Without the flag, or after decryption, the content
// is
//
//	fingerprint  its kind, 8 bytes, and its sum, 32 bytes
//	completed    8 bytes: when the run ended, in milliseconds since 1970, big endian, by its process's wall clock
//	extension    uvarint length, and as many bytes of fields that a reader may ignore: see extension.go
//	payload      the rest
//
// With FlagCompressed the payload is a uvarint, which is its length before the compression, and one DEFLATE stream (RFC
// 1951) to the end. A uvarint has its shortest form. The storage key is in the checksum, so that a record that was
// copied to another key is unreadable.
//
// Compatibility: two successive releases may share a Redis. So each release reads what the previous one writes, and
// writes only what the previous one can read:
//
//   - A new field that a reader may ignore goes into the extension, with the next tag.
//   - Any other change needs a new version, flag or kind of fingerprint. One release learns to read it, and the next
//     one writes it.
//
// Tests read the records and notes of the first release in middleware/testdata/stored, which are never rewritten.
const (
	Version = 1

	FlagTombstone  = 1 << 0
	FlagCompressed = 1 << 1
	FlagEncrypted  = 1 << 2
	flagValue      = 1 << 3 // of a record whose door is Value
	flagsKnown     = FlagTombstone | FlagCompressed | FlagEncrypted | flagValue

	ChecksumAt = 1
	FlagsAt    = ChecksumAt + 4
	ContentAt  = FlagsAt + 1

	timeLen     = 8
	noExtension = "\x00" // an extension of length 0
)

// Codec encodes and decodes records and notes. It decodes what any other Codec has encoded, provided that it has the
// key. With keys it rejects what is not encrypted, unless PlaintextReads is set. The zero value neither compresses nor
// encrypts. A Codec is safe for concurrent use.
type Codec struct {
	Door           Door // of the records and notes that it encodes; it decodes no other door's
	Compress       bool
	CompressMin    int // in bytes, of the payload
	Keys           Keyring
	PlaintextReads bool
}

// Door names what a payload is.
type Door byte

const (
	HTTP  Door = iota // a response
	Value             // a function's result
)

// Record is a record as a value.
type Record struct {
	Tombstone   bool // the run ended without a result that can be replayed
	Unknown     bool // it is not known whether the run took effect; for a Tombstone
	Fingerprint Fingerprint
	Completed   time.Time // in whole milliseconds, by the wall clock of the run's process: for information only
	Trace       Trace     // zero if none was stored

	// The payload is Head and then Body, so that a long body is not copied in memory. Decode returns it in Body, which
	// may share memory with what it has decoded.
	Head, Body []byte
}

// Fingerprint tells requests with the same key apart. Only fingerprints of one kind can be compared.
type Fingerprint struct {
	Kind Kind
	Sum  [sha256.Size]byte
}

// Kind names the rule that a fingerprint was made by. The zero Kind means that no input was given to compare.
type Kind [8]byte

// fingerprintLen is the length of a stored fingerprint: the kind, then the sum.
const fingerprintLen = len(Kind{}) + sha256.Size

// AppendTo appends f as it is stored.
func (f *Fingerprint) AppendTo(b []byte) []byte {
	return append(append(b, f.Kind[:]...), f.Sum[:]...)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the checksum of an encoded record.
func Checksum(storageKey string, encoded []byte) uint32 {
	sum := crc32.Update(uint32(encoded[0]), castagnoli, []byte(storageKey))
	return crc32.Update(sum, castagnoli, encoded[FlagsAt:])
}

// Room returns how many bytes the encoded record takes at most.
func (r *Record) Room() int {
	return ContentAt + fingerprintLen + timeLen + len(noExtension) + traceField + emptyField + encryptionOverhead +
		len(r.Head) + len(r.Body)
}

// Append appends the encoded record to dst.
func (c *Codec) Append(dst []byte, storageKey string, r *Record) []byte {
	flags := c.doorFlag()
	if r.Tombstone {
		flags |= FlagTombstone
	}
	start := len(dst)
	dst = r.Fingerprint.AppendTo(append(dst, make([]byte, ContentAt)...))
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.Completed.UnixMilli()))
	dst = appendExtension(dst, r)
	dst, compressed := c.appendPayload(dst, r)
	if compressed {
		flags |= FlagCompressed
	}
	if len(c.Keys) > 0 {
		flags |= FlagEncrypted
		dst = c.Keys.Encrypt(RecordPurpose, storageKey, []byte{Version, flags}, dst, start+ContentAt)
	}
	b := dst[start:]
	b[0], b[FlagsAt] = Version, flags
	binary.BigEndian.PutUint32(b[ChecksumAt:], Checksum(storageKey, b))
	return dst
}

func (c *Codec) doorFlag() byte {
	if c.Door == Value {
		return flagValue
	}
	return 0
}

func (c *Codec) appendPayload(b []byte, r *Record) (_ []byte, compressed bool) {
	size := len(r.Head) + len(r.Body)
	if c.Compress && c.CompressMin <= size && size <= maxInflated {
		if smaller, ok := Deflate(b, r.Head, r.Body); ok {
			return smaller, true
		}
	}
	return append(append(b, r.Head...), r.Body...), false
}

// Why a record or a note cannot be read. Each wraps ErrUnreadable, which the doors export.
var (
	ErrUnreadable    = errors.New("onceguard: what is stored is unreadable")
	errDamaged       = fmt.Errorf("%w: damaged, of another key, of another kind of run, or of a newer version", ErrUnreadable)
	errEncrypted     = fmt.Errorf("%w: encrypted, and there is no WithEncryption", ErrUnreadable)
	errPlaintext     = fmt.Errorf("%w: not encrypted, and there is no WithPlaintextReads", ErrUnreadable)
	errNoKeyDecrypts = fmt.Errorf("%w: no key of WithEncryption decrypts it", ErrUnreadable)
)
