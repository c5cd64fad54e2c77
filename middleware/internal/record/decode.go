package record

import (
	"encoding/binary"
	"math"
	"strconv"
	"time"

	"github.com/onceguard/onceguard/middleware/internal/response"
)

// Decode returns the record in b. Its response is s.Stored, whose body may share memory with b. An error means that b
// is damaged, is of another key or a newer version, that no key of c decrypts it, or that it is not encrypted although
// c requires that.
func (c *Codec) Decode(s *response.Scratch, storageKey string, b []byte) (Record, error) {
	if !isIntact(s, storageKey, b) {
		return Record{}, errDamaged
	}
	flags := b[FlagsAt]
	content, err := c.decrypt(flags&FlagEncrypted != 0, RecordPurpose, storageKey, []byte{Version, flags}, b[ContentAt:])
	if err != nil {
		return Record{}, err
	}
	d := decoder{b: content}
	r := Record{
		Tombstone: flags&FlagTombstone != 0, Fingerprint: d.fingerprint(), Completed: d.time(), Response: &s.Stored,
	}
	d.extension(&r)
	if flags&FlagCompressed != 0 {
		d.inflateRest()
	}
	r.Status = d.number(999)
	d.headersAndBody(s)
	lacksStatus := r.Status < 100 && !r.Tombstone
	if d.failed || lacksStatus {
		return Record{}, errDamaged
	}
	return r, nil
}

// isIntact reports whether b is an undamaged record of this key, in a form that this release knows.
func isIntact(s *response.Scratch, storageKey string, b []byte) bool {
	return len(b) >= ContentAt && b[0] == Version && b[FlagsAt]&^flagsKnown == 0 &&
		binary.BigEndian.Uint32(b[ChecksumAt:]) == checksumOf(s, storageKey, b)
}

// headersAndBody reads header, trailer and body. It allocates one string that has all names and values, and one list of
// all values. The length of header and trailer precedes them, so one pass is enough.
func (d *decoder) headersAndBody(s *response.Scratch) {
	r := &s.Stored
	head := decoder{b: d.take(d.count())}
	r.Body = d.rest()
	s.Text = strconv.AppendInt(append(s.Text[:0], head.b...), int64(len(r.Body)), 10)
	text := string(s.Text)
	r.Length = text[len(head.b):]

	list, values := head.changes(text, s.Changes[:0], nil)
	headers := len(list)
	list, r.Spare = head.changes(text, list, values)
	s.Changes = list
	r.Header, r.Trailer = list[:headers:headers], list[headers:]
	if head.failed || len(head.rest()) > 0 {
		d.fail()
	}
}

// decoder reads from b. Once a method has found malformed bytes, failed is set, and every method returns a zero value.
type decoder struct {
	b      []byte
	at     int // the index of the next byte
	fields int // header names and values so far; only grows
	failed bool
}

// maxFields is how many names and values a header and a trailer may have together. It bounds the memory for a forged
// record: a short name takes far more bytes in memory than in a record.
const maxFields = 10_000

func (d *decoder) rest() []byte { return d.b[d.at:] }

func (d *decoder) fail() {
	d.at, d.failed = len(d.b), true
}

func (d *decoder) take(n int) []byte {
	if n > len(d.b)-d.at {
		d.fail()
		return nil
	}
	d.at += n
	return d.b[d.at-n : d.at]
}

// number reads a uvarint in its shortest form, which must be limit at most.
func (d *decoder) number(limit int) int {
	if d.at < len(d.b) && d.b[d.at] < 0x80 && int(d.b[d.at]) <= limit { // most are one byte
		d.at++
		return int(d.b[d.at-1])
	}
	v, n := binary.Uvarint(d.rest())
	isPadded := n > 1 && d.b[d.at+n-1] == 0
	if n <= 0 || isPadded || v > uint64(limit) {
		d.fail()
		return 0
	}
	d.at += n
	return int(v)
}

// count reads how many elements or bytes follow. It fails if fewer bytes follow, so a forged count makes no large
// slice.
func (d *decoder) count() int { return d.number(len(d.b) - d.at) }

func (d *decoder) fingerprint() (f Fingerprint) {
	copy(f.Kind[:], d.take(len(f.Kind)))
	copy(f.Sum[:], d.take(len(f.Sum)))
	return f
}

func (d *decoder) time() time.Time {
	b := d.take(timeLen)
	if b == nil {
		return time.Time{}
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b)))
}

// inflateRest replaces the rest with its decompressed form.
func (d *decoder) inflateRest() {
	size := d.number(math.MaxInt)
	inflated, ok := inflate(d.rest(), size)
	if d.b, d.at = inflated, 0; !ok {
		d.fail()
	}
}

// field reads a name or a value, and returns it as a part of text, which begins with a copy of b.
func (d *decoder) field(text string) string {
	if d.fields++; d.fields > maxFields {
		d.fail()
	}
	taken := len(d.take(d.count()))
	return text[d.at-taken : d.at]
}

// changes appends a header or a trailer to list, and its values to values, which may be nil.
func (d *decoder) changes(text string, list []response.Change, values []string) ([]response.Change, []string) {
	n := d.number(min(len(d.b)-d.at, maxFields))
	if values == nil {
		values = make([]string, 0, n+response.SpareValues) // most have one value each
	}
	for ; n > 0 && !d.failed; n-- {
		c := response.Change{Op: d.op(), Name: d.field(text)}
		start := len(values)
		for count := d.count(); count > 0 && !d.failed; count-- {
			values = append(values, d.field(text))
		}
		if len(values) > start {
			c.Values = values[start:len(values):len(values)]
		}
		list = append(list, c)
	}
	return list, values
}

func (d *decoder) op() response.Op {
	if b := d.take(1); b != nil && response.Op(b[0]) < response.OpEnd {
		return response.Op(b[0])
	}
	d.fail()
	return 0
}
