package middleware

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
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
	t := &fieldText{changes: s.changes[:0], values: make([]string, 0, look.values+spareValues)}
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

// fieldText is what names and values are taken out of: text, which is a copy of what the decoder began with.
type fieldText struct {
	text    string
	changes []change
	values  []string
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
func (d *decoder) field(t *fieldText) string {
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
func (d *decoder) changes(t *fieldText) {
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
