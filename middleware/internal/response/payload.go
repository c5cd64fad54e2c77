package response

import (
	"encoding/binary"
	"fmt"

	"github.com/onceguard/onceguard/internal/record"
)

// The payload of a record is
//
//	status       uvarint
//	length       uvarint, of header and trailer together
//	header       uvarint count, then as many changes
//	trailer      the same
//	body         the rest
//
// A change is an operation byte, a name, a uvarint count and as many values. A name or a value is a uvarint length and
// as many bytes. The payload of a tombstone is that of a response that has only a status, which may be 0.

// maxFields is how many names and values a header and a trailer may have together. It bounds the memory for a forged
// record: a short name takes far more bytes in memory than in a record.
const maxFields = 10_000

// Payload returns the response as the payload of a record: all that precedes the body, and the body. ok is false if the
// response has more than 10,000 names and values of header fields, so that Decode would refuse it.
func (r *Response) Payload() (head, body []byte, ok bool) {
	fields := 0
	for _, list := range [...][]Change{r.Header, r.Trailer} {
		for _, c := range list {
			fields += 1 + len(c.Values)
		}
	}
	if fields > maxFields {
		return nil, nil, false
	}
	var room [512]byte
	text := appendChanges(appendChanges(room[:0], r.Header), r.Trailer)
	head = binary.AppendUvarint(make([]byte, 0, len(text)+2*binary.MaxVarintLen16), uint64(r.Status))
	head = append(binary.AppendUvarint(head, uint64(len(text))), text...)
	return head, r.Body, true
}

func appendChanges(b []byte, changes []Change) []byte {
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

// Tombstone returns the payload of a tombstone. status is 0 if it is not known.
func Tombstone(status int) []byte {
	const noFields = "\x02\x00\x00" // the length of two empty lists, and the lists
	return append(binary.AppendUvarint(nil, uint64(status)), noFields...)
}

// Status returns the status in the payload, or 0 if the payload is malformed.
func Status(payload []byte) int {
	status, _, _ := record.CutUvarint(payload, 999)
	return status
}

// errMalformed is Decode's error.
var errMalformed = fmt.Errorf("%w: it is not an HTTP response", record.ErrUnreadable)

// Decode decodes the payload of a record. The body shares memory with the payload. The error, for a malformed payload,
// wraps [record.ErrUnreadable].
//
// All names and values share one string. The length of header and trailer precedes them, so one pass is enough.
func Decode(payload []byte) (r Response, err error) {
	d := decoder{b: payload}
	status := d.number(999)
	head := decoder{b: d.take(d.count())}
	text := string(head.b)

	header, trailer := head.changes(text), head.changes(text)
	if d.failed || head.failed || len(head.rest()) > 0 || status < 100 {
		return Response{}, errMalformed
	}
	return Response{Status: status, Header: header, Trailer: trailer, Body: d.rest()}, nil
}

// decoder reads from b. Once a method has found malformed bytes, failed is set, and every method returns a zero value.
type decoder struct {
	b      []byte
	at     int // the index of the next byte
	fields int // names and values so far; only grows
	failed bool
}

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
	v, rest, ok := record.CutUvarint(d.rest(), limit)
	if !ok {
		d.fail()
		return 0
	}
	d.at = len(d.b) - len(rest)
	return v
}

// count reads how many elements or bytes follow. It fails if fewer bytes follow, so a forged count makes no large
// slice.
func (d *decoder) count() int { return d.number(len(d.b) - d.at) }

// field reads a name or a value, and returns it as a part of text, which is a copy of b.
func (d *decoder) field(text string) string {
	if d.fields++; d.fields > maxFields {
		d.fail()
	}
	taken := len(d.take(d.count()))
	return text[d.at-taken : d.at]
}

// changes reads a header or a trailer. All values share one slice.
func (d *decoder) changes(text string) []Change {
	const least = 3 // bytes of a change
	n := d.number(min((len(d.b)-d.at)/least, maxFields))
	list, values := make([]Change, 0, n), make([]string, 0, n)
	for ; n > 0 && !d.failed; n-- {
		c := Change{Op: d.op(), Name: d.field(text)}
		from := len(values)
		for count := d.count(); count > 0 && !d.failed; count-- {
			values = append(values, d.field(text))
		}
		if len(values) > from {
			c.Values = values[from:len(values):len(values)]
		}
		list = append(list, c)
	}
	return list
}

func (d *decoder) op() Op {
	if b := d.take(1); b != nil && Op(b[0]) < opEnd {
		return Op(b[0])
	}
	d.fail()
	return 0
}
