package middleware

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// A record is what a key holds once the handler is done:
//
//	version      1 byte
//	checksum     4 bytes, CRC-32C of the storage key and of all other bytes
//	flags        1 byte; a flag that is not known makes the record unreadable
//	content      the rest
//
// With flagSealed the content is a nonce of 12 bytes, a ciphertext and a tag of 16 bytes (see keyring.seal), where
// version and flags are authenticated and the checksum is not. Without the flag, and below the seal, the content is
//
//	fingerprint  33 bytes
//	response     the rest
//
// With flagCompressed the response is a uvarint, which is its length before the compression, and one DEFLATE stream
// (RFC 1951) to the end. Without the flag, and below the compression, the response is
//
//	status       uvarint
//	header       uvarint count, then as many changes
//	trailer      the same
//	body         the rest
//
// and a change is an operation byte, a name, a uvarint count and as many values. Name and values are uvarint length and
// bytes. A uvarint has its shortest form. The storage key is in the checksum so that a record which was copied under
// another key does not read.
const (
	recordVersion = 1

	flagTombstone  = 1 << 0 // the response itself was not kept, only its status
	flagCompressed = 1 << 1
	flagSealed     = 1 << 2
	flagsKnown     = flagTombstone | flagCompressed | flagSealed

	checksumAt = 1
	flagsAt    = checksumAt + 4
	contentAt  = flagsAt + 1
	recordRoom = contentAt + len(fingerprint{}) + 3 + 512 // what a response without a body takes, with most headers
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
	status      int
	header      []change
	trailer     []change
	body        []byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum covers the key and all bytes of a record but the checksum itself.
func checksum(storageKey string, encoded []byte) uint32 {
	sum := crc32.Update(0, castagnoli, []byte(storageKey))
	sum = crc32.Update(sum, castagnoli, encoded[:checksumAt])
	return crc32.Update(sum, castagnoli, encoded[flagsAt:])
}

// encode returns the record as it is stored under the key.
func (c *codec) encode(storageKey string, r record) []byte {
	var flags byte
	if r.tombstone {
		flags |= flagTombstone
	}
	b := make([]byte, contentAt, recordRoom+len(r.body))
	b = append(b, r.fingerprint[:]...)
	b, compressed := c.appendResponse(b, r)
	if compressed {
		flags |= flagCompressed
	}
	if len(c.keys) > 0 {
		flags |= flagSealed
		b = c.keys.seal(recordPurpose, storageKey, []byte{recordVersion, flags}, b, contentAt)
	}
	b[0], b[flagsAt] = recordVersion, flags
	putChecksum(storageKey, b)
	return b
}

// putChecksum puts the checksum into an encoded record. Too short a one is left alone.
func putChecksum(storageKey string, encoded []byte) {
	if len(encoded) >= flagsAt {
		binary.BigEndian.PutUint32(encoded[checksumAt:], checksum(storageKey, encoded))
	}
}

func (c *codec) appendResponse(b []byte, r record) (_ []byte, compressed bool) {
	start := len(b)
	b = binary.AppendUvarint(b, uint64(r.status))
	b = appendChanges(b, r.header)
	b = appendChanges(b, r.trailer)
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

// decode reads what encode wrote. The record's body may be a part of b.
func (c *codec) decode(storageKey string, b []byte) (record, error) {
	if len(b) < contentAt || b[0] != recordVersion || b[flagsAt]&^flagsKnown != 0 ||
		binary.BigEndian.Uint32(b[checksumAt:]) != checksum(storageKey, b) {
		return record{}, errDamaged
	}
	flags := b[flagsAt]
	content, err := c.unseal(flags&flagSealed != 0, recordPurpose, storageKey, []byte{recordVersion, flags}, b[contentAt:])
	if err != nil {
		return record{}, err
	}
	d := decoder{rest: content}
	r := record{tombstone: flags&flagTombstone != 0}
	copy(r.fingerprint[:], d.take(len(r.fingerprint)))
	if flags&flagCompressed != 0 {
		d.inflate()
	}
	r.status = d.number(999)
	r.header = d.changes()
	r.trailer = d.changes()
	r.body = d.rest
	if d.failed || !r.tombstone && r.status < 100 {
		return record{}, errDamaged
	}
	return r, nil
}

// unseal returns the content without its seal. It is an error when there is none and must be one, or the other way
// round.
func (c *codec) unseal(sealed bool, purpose, storageKey string, visible, content []byte) ([]byte, error) {
	switch {
	case sealed && len(c.keys) == 0:
		return nil, errSealed
	case sealed:
		return c.keys.open(purpose, storageKey, visible, content)
	case len(c.keys) > 0 && !c.plaintextReads:
		return nil, errNotSealed
	}
	return content, nil
}

// decoder reads from rest. Once something does not fit it has failed, and yields nothing any more.
type decoder struct {
	rest   []byte
	fields int // header names and values so far
	failed bool
}

// maxFields bounds the names and values of a header, which take many times more memory than bytes in a record.
const maxFields = 10_000

func (d *decoder) fail() {
	d.rest, d.failed = nil, true
}

func (d *decoder) take(n int) []byte {
	if n > len(d.rest) {
		d.fail()
		return nil
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken
}

// number reads a uvarint, in its shortest form, that is limit at the most.
func (d *decoder) number(limit int) int {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || n > 1 && d.rest[n-1] == 0 || v > uint64(limit) {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return int(v)
}

// count reads how many things follow. Each takes a byte at least, so that a forged count makes no large slice.
func (d *decoder) count() int { return d.number(len(d.rest)) }

// inflate goes on with what the rest is before its compression.
func (d *decoder) inflate() {
	size := d.number(math.MaxInt)
	inflated, ok := inflate(d.rest, size)
	if d.rest = inflated; !ok {
		d.fail()
	}
}

// field reads a name or a value.
func (d *decoder) field() string {
	if d.fields++; d.fields > maxFields {
		d.fail()
	}
	return d.text()
}

func (d *decoder) text() string { return string(d.take(d.count())) }

func (d *decoder) changes() []change {
	var changes []change
	for n := d.count(); n > 0 && !d.failed; n-- {
		c := change{op: d.op(), name: d.field()}
		for n := d.count(); n > 0 && !d.failed; n-- {
			c.values = append(c.values, d.field())
		}
		changes = append(changes, c)
	}
	return changes
}

func (d *decoder) op() op {
	if b := d.take(1); b != nil && op(b[0]) < opEnd {
		return op(b[0])
	}
	d.fail()
	return 0
}

// A claim's note says what the claim is for: a byte that tells its form, and the fingerprint, which in a sealed note is
// between a nonce and a tag (see keyring.seal).
const (
	notePlain  = 1
	noteSealed = 2
)

func (c *codec) encodeNote(storageKey string, f fingerprint) []byte {
	if len(c.keys) == 0 {
		return append([]byte{notePlain}, f[:]...)
	}
	b := append(make([]byte, 0, 1+len(f)+sealOverhead), noteSealed)
	return c.keys.seal(notePurpose, storageKey, []byte{noteSealed}, append(b, f[:]...), 1)
}

func (c *codec) decodeNote(storageKey string, note []byte) (f fingerprint, err error) {
	if len(note) == 0 || note[0] != notePlain && note[0] != noteSealed {
		return f, errDamaged
	}
	content, err := c.unseal(note[0] == noteSealed, notePurpose, storageKey, note[:1], note[1:])
	if err != nil {
		return f, err
	}
	if len(content) != len(f) {
		return f, errDamaged
	}
	copy(f[:], content)
	return f, nil
}
