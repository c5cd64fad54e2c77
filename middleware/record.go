package middleware

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strconv"
	"strings"
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

	// of one that was decoded, for its replay
	length string   // of the body
	spare  []string // with room for spareValues more
}

// spareValues is how many values writeTo adds to the header.
const spareValues = 2

// value returns a list of one value, made of spare.
func (r *record) value(v string) []string {
	n := len(r.spare)
	r.spare = append(r.spare, v)
	return r.spare[n : n+1 : n+1]
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum covers the key and all bytes of a record but the checksum itself. The key is bytes because a string would be
// copied to the heap, where crc32's arguments escape to.
func checksum(storageKey, encoded []byte) uint32 {
	sum := crc32.Update(0, castagnoli, storageKey)
	sum = crc32.Update(sum, castagnoli, encoded[:checksumAt])
	return crc32.Update(sum, castagnoli, encoded[flagsAt:])
}

// room is about how many bytes the record takes as it is stored, and seldom less.
func (r *record) room() int {
	const length = 2 // of a uvarint up to 16383
	n := contentAt + len(r.fingerprint) + sealOverhead + 3*length + len(r.body)
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
	to = slices.Grow(to, r.room())
	b := append(to[len(to):len(to)+contentAt], r.fingerprint[:]...)
	b, compressed := c.appendResponse(b, r)
	if compressed {
		flags |= flagCompressed
	}
	if len(c.keys) > 0 {
		flags |= flagSealed
		b = c.keys.seal(recordPurpose, storageKey, []byte{recordVersion, flags}, b, contentAt)
	}
	b[0], b[flagsAt] = recordVersion, flags
	binary.BigEndian.PutUint32(b[checksumAt:], s.checksum(storageKey, b))
	return append(to, b...) // where it is already, as a rule
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

// decode reads what appendRecord wrote. The record's body may be a part of b, and its changes are in s; all else it has is
// its own.
func (c *codec) decode(s *scratch, storageKey string, b []byte) (record, error) {
	if len(b) < contentAt || b[0] != recordVersion || b[flagsAt]&^flagsKnown != 0 ||
		binary.BigEndian.Uint32(b[checksumAt:]) != s.checksum(storageKey, b) {
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
	d.fieldsOf(&r, s)
	if d.failed || !r.tombstone && r.status < 100 {
		return record{}, errDamaged
	}
	return r, nil
}

// fieldsOf reads header, trailer and body. It reads the first two twice: to see how long they are, and that they are
// right, and then to take them out of one string, into one list of values. That costs a replay two allocations, where
// one for each name, value and list were ten.
func (d *decoder) fieldsOf(r *record, s *scratch) {
	look := *d
	look.changes(nil)
	look.changes(nil)
	if look.failed {
		d.fail()
		return
	}
	r.body = look.rest
	t := &taken{changes: s.changes[:0], values: make([]string, 0, look.values+spareValues)}
	var text strings.Builder
	var digits [20]byte
	head := d.rest[:len(d.rest)-len(look.rest)]
	text.Grow(len(head) + len(digits))
	text.Write(head)
	text.Write(strconv.AppendInt(digits[:0], int64(len(r.body)), 10))
	t.text, r.length = text.String()[:len(head)], text.String()[len(head):]

	d.rest = head
	d.changes(t)
	headers := len(t.changes)
	d.changes(t)
	s.changes = t.changes
	r.header, r.trailer, r.spare = t.changes[:headers:headers], t.changes[headers:], t.values
}

// taken is what was taken out of text, which is a copy of what the decoder began with.
type taken struct {
	text    string
	changes []change
	values  []string
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
	values int // of them
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
	if len(d.rest) > 0 && d.rest[0] < 0x80 && int(d.rest[0]) <= limit { // most are one byte
		v := int(d.rest[0])
		d.rest = d.rest[1:]
		return v
	}
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

// field reads a name or a value. It is empty if t is nil.
func (d *decoder) field(t *taken) string {
	if d.fields++; d.fields > maxFields {
		d.fail()
	}
	n := len(d.take(d.count()))
	if t == nil {
		return ""
	}
	end := len(t.text) - len(d.rest)
	return t.text[end-n : end]
}

// changes reads a list. It only looks if t is nil.
func (d *decoder) changes(t *taken) {
	for n := d.count(); n > 0 && !d.failed; n-- {
		c := change{op: d.op(), name: d.field(t)}
		values := d.count()
		for left := values; left > 0 && !d.failed; left-- {
			if v := d.field(t); t != nil {
				t.values = append(t.values, v)
			}
		}
		d.values += values
		if t == nil {
			continue
		}
		if values > 0 {
			c.values = t.values[len(t.values)-values : len(t.values) : len(t.values)]
		}
		t.changes = append(t.changes, c)
	}
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

// encodeNote appends a plain note to room. A sealed one has its own; only that needs the key.
func (c *codec) encodeNote(room []byte, storageKey string, f fingerprint) []byte {
	if len(c.keys) == 0 {
		return append(append(room, notePlain), f[:]...)
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
