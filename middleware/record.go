package middleware

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// A record is what a key holds once the handler is done:
//
//	version      1 byte
//	checksum     4 bytes, CRC-32C, started from the version, of the storage key and of all bytes behind the checksum
//	flags        1 byte; a flag that is not known makes the record unreadable
//	content      the rest
//
// With flagSealed the content is a nonce of 12 bytes, a ciphertext and a tag of 16 bytes (see keyring.seal), where
// version and flags are authenticated and the checksum is not. Without the flag, and below the seal, the content is
//
//	fingerprint  its kind, 8 bytes, and its sum, 32 bytes
//	completed    8 bytes: when the handler returned, in milliseconds since 1970, big endian, by the wall clock of its process
//	extension    uvarint length, and as many bytes for the fields that later releases add; none today, and skipped
//	response     the rest
//
// With flagCompressed the response is a uvarint, which is its length before the compression, and one DEFLATE stream
// (RFC 1951) to the end. Without the flag, and below the compression, the response is
//
//	status       uvarint
//	length       uvarint, of header and trailer together
//	header       uvarint count, then as many changes
//	trailer      the same
//	body         the rest
//
// and a change is an operation byte, a name, a uvarint count and as many values. Name and values are uvarint length and
// bytes. A uvarint has its shortest form. The storage key is in the checksum so that a record which was copied under
// another key does not read.
//
// Every release reads what the one before it wrote, and writes what that one can read. A field that a reader may ignore
// goes into the extension. Whatever else changes takes a new version, flag or kind of fingerprint, which one release reads
// before the next one writes it. testdata/stored holds records and notes of the first release: they are never rewritten.
const (
	recordVersion = 1

	flagTombstone  = 1 << 0 // the response itself was not kept, only its status
	flagCompressed = 1 << 1
	flagSealed     = 1 << 2
	flagsKnown     = flagTombstone | flagCompressed | flagSealed

	checksumAt = 1
	flagsAt    = checksumAt + 4
	contentAt  = flagsAt + 1

	timeLen     = 8
	noExtension = "\x00" // an extension of length 0
)

// codec writes what is stored as its options want it, and reads what a codec with any options has written, but for
// what sealing forbids. Its zero value neither compresses nor seals.
type codec struct {
	compress       bool
	compressMin    int // bytes of a response
	keys           keyring
	plaintextReads bool
}

// record is a response as it is stored.
type record struct {
	tombstone   bool
	fingerprint fingerprint
	completed   time.Time // to the millisecond, by another process's wall clock: it informs, and decides nothing
	status      int
	header      []change
	trailer     []change
	body        []byte

	// of one that was decoded, for its replay
	length string   // of the body
	spare  []string // with room for spareValues more, as a rule
}

// spareValues is how many values writeTo adds to the header of a response below 500.
const spareValues = 2

// value returns a list of one value, made of spare.
func (r *record) value(v string) []string {
	n := len(r.spare)
	r.spare = append(r.spare, v)
	return r.spare[n : n+1 : n+1]
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum covers the storage key, the version, from which it starts, and all bytes behind the checksum. The key is
// bytes because a string would be copied to the heap, where crc32's arguments escape to.
func checksum(storageKey, encoded []byte) uint32 {
	sum := crc32.Update(uint32(encoded[0]), castagnoli, storageKey)
	return crc32.Update(sum, castagnoli, encoded[flagsAt:])
}

// isReadable tells whether decode would take it.
func (r *record) isReadable() bool {
	fields := 0
	for _, list := range [...][]change{r.header, r.trailer} {
		for _, c := range list {
			fields += 1 + len(c.values)
		}
	}
	return fields <= maxFields
}

// room is about how many bytes the record takes as it is stored, and seldom less.
func (r *record) room() int {
	const length = 2 // of a uvarint up to 16383
	n := contentAt + fingerprintLen + timeLen + len(noExtension) + sealOverhead + 4*length + len(r.body)
	for _, list := range [...][]change{r.header, r.trailer} {
		for _, c := range list {
			n += 1 + length + len(c.name) + length
			for _, v := range c.values {
				n += length + len(v)
			}
		}
	}
	return n
}

// appendRecord appends the record to what is there, as it is stored under the key.
func (c *codec) appendRecord(to []byte, s *scratch, storageKey string, r record) []byte {
	var flags byte
	if r.tombstone {
		flags |= flagTombstone
	}
	start := len(to)
	to = r.fingerprint.appendTo(append(to, make([]byte, contentAt)...))
	to = binary.BigEndian.AppendUint64(to, uint64(r.completed.UnixMilli()))
	to = append(to, noExtension...)
	to, compressed := c.appendResponse(to, s, r)
	if compressed {
		flags |= flagCompressed
	}
	if len(c.keys) > 0 {
		flags |= flagSealed
		to = c.keys.seal(recordPurpose, storageKey, []byte{recordVersion, flags}, to, start+contentAt)
	}
	b := to[start:]
	b[0], b[flagsAt] = recordVersion, flags
	binary.BigEndian.PutUint32(b[checksumAt:], s.checksum(storageKey, b))
	return to
}

func (c *codec) appendResponse(b []byte, s *scratch, r record) (_ []byte, compressed bool) {
	start := len(b)
	b = binary.AppendUvarint(b, uint64(r.status))
	s.text = appendChanges(appendChanges(s.text[:0], r.header), r.trailer)
	b = append(binary.AppendUvarint(b, uint64(len(s.text))), s.text...)
	if size := len(b) - start + len(r.body); c.compress && size >= c.compressMin && size <= maxInflated {
		head := bytes.Clone(b[start:])
		if smaller, ok := deflate(b[:start], head, r.body); ok {
			return smaller, true
		}
		b = append(b[:start], head...)
	}
	return append(b, r.body...), false
}

func appendChanges(b []byte, changes []change) []byte {
	b = binary.AppendUvarint(b, uint64(len(changes)))
	for _, c := range changes {
		b = append(b, byte(c.op))
		b = appendText(b, c.name)
		b = binary.AppendUvarint(b, uint64(len(c.values)))
		for _, v := range c.values {
			b = appendText(b, v)
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// What is wrong with a record or a note. Each is an errUnreadable.
var (
	errUnreadable = errors.New("middleware: what is stored is unreadable")
	errDamaged    = fmt.Errorf("%w: damaged, of another key, or of a newer version", errUnreadable)
	errSealed     = fmt.Errorf("%w: sealed, and there is no WithEncryption", errUnreadable)
	errNotSealed  = fmt.Errorf("%w: not sealed, and there is no WithPlaintextReads", errUnreadable)
	errNoKeyOpens = fmt.Errorf("%w: no key of WithEncryption opens it", errUnreadable)
)
