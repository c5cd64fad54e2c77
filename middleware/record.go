package middleware

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// A record is what a key holds once the handler is done:
//
//	version      1 byte
//	checksum     4 bytes, CRC-32C of the storage key and of all other bytes
//	flags        1 byte; a flag that is not known makes the record unreadable
//	fingerprint  33 bytes
//	status       uvarint
//	header       uvarint count, then as many changes
//	trailer      the same
//	body         the rest
//
// and a change is an operation byte, a name, a uvarint count and as many values. Name and values are uvarint length
// and bytes. The storage key is in the checksum so that a record which was copied under another key does not read.
const (
	recordVersion = 1

	flagTombstone = 1 << 0 // the response itself was not kept, only its status

	checksumAt = 1
	flagsAt    = checksumAt + 4
	recordMin  = flagsAt + 1 + len(fingerprint{}) + 3 // version to flags, fingerprint, and three uvarints
)

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
func (r record) encode(storageKey string) []byte {
	b := make([]byte, flagsAt, recordMin+512+len(r.body))
	b[0] = recordVersion
	var flags byte
	if r.tombstone {
		flags |= flagTombstone
	}
	b = append(b, flags)
	b = append(b, r.fingerprint[:]...)
	b = binary.AppendUvarint(b, uint64(r.status))
	b = appendChanges(b, r.header)
	b = appendChanges(b, r.trailer)
	b = append(b, r.body...)
	seal(storageKey, b)
	return b
}

// seal puts the checksum into an encoded record. Too short a one is left alone.
func seal(storageKey string, encoded []byte) {
	if len(encoded) >= flagsAt {
		binary.BigEndian.PutUint32(encoded[checksumAt:], checksum(storageKey, encoded))
	}
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

var errUnreadable = errors.New("middleware: the stored record is damaged, of another key, or of a newer version")

// decodeRecord reads what encode wrote. The record's body is a part of b.
func decodeRecord(storageKey string, b []byte) (record, error) {
	if len(b) < recordMin || b[0] != recordVersion || b[flagsAt]&^flagTombstone != 0 ||
		binary.BigEndian.Uint32(b[checksumAt:]) != checksum(storageKey, b) {
		return record{}, errUnreadable
	}
	d := decoder{rest: b[flagsAt+1:]}
	r := record{tombstone: b[flagsAt]&flagTombstone != 0}
	copy(r.fingerprint[:], d.take(len(r.fingerprint)))
	r.status = d.number(999)
	r.header = d.changes()
	r.trailer = d.changes()
	r.body = d.rest
	if d.failed || !r.tombstone && r.status < 100 {
		return record{}, errUnreadable
	}
	return r, nil
}

// decoder reads from rest. Once something does not fit it has failed, and yields nothing any more.
type decoder struct {
	rest   []byte
	failed bool
}

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

func (d *decoder) text() string { return string(d.take(d.count())) }

func (d *decoder) changes() []change {
	var changes []change
	for n := d.count(); n > 0 && !d.failed; n-- {
		c := change{op: d.op(), name: d.text()}
		for n := d.count(); n > 0 && !d.failed; n-- {
			c.values = append(c.values, d.text())
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

// A claim's note says what the claim is for: a version and the fingerprint.
const noteVersion = 1

func encodeNote(f fingerprint) []byte { return append([]byte{noteVersion}, f[:]...) }

func decodeNote(note []byte) (f fingerprint, ok bool) {
	if len(note) != 1+len(f) || note[0] != noteVersion {
		return f, false
	}
	copy(f[:], note[1:])
	return f, true
}
