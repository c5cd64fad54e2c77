// Package record defines the stored formats: the record of a response, and the note of a claim.
package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/onceguard/onceguard/middleware/internal/response"
)

// A record is what a key holds once the handler is done:
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
//	completed    8 bytes: when the handler returned, in milliseconds since 1970, big endian, by its process's wall clock
//	extension    uvarint length, and as many bytes of fields that a reader may ignore: see extension.go
//	response     the rest
//
// With FlagCompressed the response is a uvarint, which is its length before the compression, and one DEFLATE stream
// (RFC 1951) to the end. Without the flag, or after decompression, the response is
//
//	status       uvarint
//	length       uvarint, of header and trailer together
//	header       uvarint count, then as many changes
//	trailer      the same
//	body         the rest
//
// A change is an operation byte, a name, a uvarint count and as many values. A name or a value is a uvarint length and
// as many bytes. A uvarint has its shortest form. The storage key is in the checksum, so that a record that was copied
// to another key is unreadable.
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

	FlagTombstone  = 1 << 0 // of the response only the status is stored
	FlagCompressed = 1 << 1
	FlagEncrypted  = 1 << 2
	flagsKnown     = FlagTombstone | FlagCompressed | FlagEncrypted

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
	Compress       bool
	CompressMin    int // in bytes: status, header and body
	Keys           Keyring
	PlaintextReads bool
}

// Record is a response as it is stored.
type Record struct {
	Tombstone   bool
	Unknown     bool // it is not known whether the run took effect; for a Tombstone
	Fingerprint Fingerprint
	Completed   time.Time // in whole milliseconds, by the wall clock of the process that ran the handler: for information only
	Trace       Trace     // zero if none was stored
	*response.Response
}

// Fingerprint tells requests with the same key apart. Only fingerprints of one kind can be compared.
type Fingerprint struct {
	Kind Kind
	Sum  [sha256.Size]byte
}

// Kind names the rule that a fingerprint was made by.
type Kind [8]byte

// fingerprintLen is the length of a stored fingerprint: the kind, then the sum.
const fingerprintLen = len(Kind{}) + sha256.Size

// AppendTo appends f as it is stored.
func (f *Fingerprint) AppendTo(b []byte) []byte {
	return append(append(b, f.Kind[:]...), f.Sum[:]...)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the checksum of an encoded record. The key is a slice because crc32's arguments escape: a string
// would be copied to the heap.
func Checksum(storageKey, encoded []byte) uint32 {
	sum := crc32.Update(uint32(encoded[0]), castagnoli, storageKey)
	return crc32.Update(sum, castagnoli, encoded[FlagsAt:])
}

// IsReadable reports whether Decode will accept the record: whether it has at most maxFields names and values.
func (r *Record) IsReadable() bool {
	fields := 0
	for _, list := range [...][]response.Change{r.Header, r.Trailer} {
		for _, c := range list {
			fields += 1 + len(c.Values)
		}
	}
	return fields <= maxFields
}

// Room returns about how many bytes the encoded record takes. It seldom takes more.
func (r *Record) Room() int {
	const length = 2 // of a uvarint up to 16383
	n := ContentAt + fingerprintLen + timeLen + len(noExtension) + encryptionOverhead + 4*length + len(r.Body)
	if !r.Trace.isZero() {
		n += traceField
	}
	if r.Unknown {
		n += emptyField
	}
	for _, list := range [...][]response.Change{r.Header, r.Trailer} {
		for _, c := range list {
			n += 1 + length + len(c.Name) + length
			for _, v := range c.Values {
				n += length + len(v)
			}
		}
	}
	return n
}

// Append appends the encoded record to dst.
func (c *Codec) Append(dst []byte, s *response.Scratch, storageKey string, r *Record) []byte {
	var flags byte
	if r.Tombstone {
		flags |= FlagTombstone
	}
	start := len(dst)
	dst = r.Fingerprint.AppendTo(append(dst, make([]byte, ContentAt)...))
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.Completed.UnixMilli()))
	dst = appendExtension(dst, r)
	dst, compressed := c.appendResponse(dst, s, r)
	if compressed {
		flags |= FlagCompressed
	}
	if len(c.Keys) > 0 {
		flags |= FlagEncrypted
		dst = c.Keys.Encrypt(RecordPurpose, storageKey, []byte{Version, flags}, dst, start+ContentAt)
	}
	b := dst[start:]
	b[0], b[FlagsAt] = Version, flags
	binary.BigEndian.PutUint32(b[ChecksumAt:], checksumOf(s, storageKey, b))
	return dst
}

func (c *Codec) appendResponse(b []byte, s *response.Scratch, r *Record) (_ []byte, compressed bool) {
	start := len(b)
	b = binary.AppendUvarint(b, uint64(r.Status))
	s.Text = appendChanges(appendChanges(s.Text[:0], r.Header), r.Trailer)
	b = append(binary.AppendUvarint(b, uint64(len(s.Text))), s.Text...)
	size := len(b) - start + len(r.Body)
	if c.Compress && c.CompressMin <= size && size <= maxInflated {
		head := bytes.Clone(b[start:])
		if smaller, ok := Deflate(b[:start], head, r.Body); ok {
			return smaller, true
		}
		b = append(b[:start], head...)
	}
	return append(b, r.Body...), false
}

func appendChanges(b []byte, changes []response.Change) []byte {
	b = binary.AppendUvarint(b, uint64(len(changes)))
	for _, c := range changes {
		b = append(b, byte(c.Op))
		b = appendText(b, c.Name)
		b = binary.AppendUvarint(b, uint64(len(c.Values)))
		for _, v := range c.Values {
			b = appendText(b, v)
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// checksumOf is Checksum with the key's bytes in the memory of s.
func checksumOf(s *response.Scratch, storageKey string, encoded []byte) uint32 {
	s.Key = append(s.Key[:0], storageKey...)
	return Checksum(s.Key, encoded)
}

// Why a record or a note cannot be read. Each wraps ErrUnreadable, which package middleware exports.
var (
	ErrUnreadable    = errors.New("middleware: what is stored is unreadable")
	errDamaged       = fmt.Errorf("%w: damaged, of another key, or of a newer version", ErrUnreadable)
	errEncrypted     = fmt.Errorf("%w: encrypted, and there is no WithEncryption", ErrUnreadable)
	errPlaintext     = fmt.Errorf("%w: not encrypted, and there is no WithPlaintextReads", ErrUnreadable)
	errNoKeyDecrypts = fmt.Errorf("%w: no key of WithEncryption decrypts it", ErrUnreadable)
)
