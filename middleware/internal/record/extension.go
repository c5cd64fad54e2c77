package record

import (
	"encoding/hex"
	"fmt"
)

// An extension is a list of fields, each of which is
//
//	tag          1 byte
//	length       1 byte
//	content      as many bytes
//
// A reader skips a tag that it does not know. Where the bytes are no such list, it ignores the rest of them: an extension
// never makes a record unreadable.
const (
	traceTag = 1 // a Trace

	traceField = 2 + len(Trace{})
)

// Trace is the traceparent of a run (W3C Trace Context, section 3.2, version 00): trace-id, parent-id and trace-flags.
// The zero Trace is none: an id of zeros is invalid.
type Trace [16 + 8 + 1]byte

// ParseTrace returns a traceparent of version 00 as a Trace, and the zero Trace for anything else.
func ParseTrace(traceparent string) (t Trace) {
	const (
		length                  = 55
		traceAt, spanAt, flagAt = 3, 36, 53
	)
	if len(traceparent) != length || traceparent[:traceAt] != "00-" || traceparent[spanAt-1] != '-' || traceparent[flagAt-1] != '-' {
		return Trace{}
	}
	digits := traceparent[traceAt:spanAt-1] + traceparent[spanAt:flagAt-1] + traceparent[flagAt:]
	b, err := hex.DecodeString(digits)
	if err != nil || hasNoID(b) || hex.EncodeToString(b) != digits { // upper case is invalid
		return Trace{}
	}
	copy(t[:], b)
	return t
}

// hasNoID reports whether an id in b, which are the bytes of a Trace, is all zeros.
func hasNoID(b []byte) bool {
	return [16]byte(b[:16]) == [16]byte{} || [8]byte(b[16:24]) == [8]byte{}
}

// String returns the traceparent, and "" for the zero Trace.
func (t Trace) String() string {
	if t == (Trace{}) {
		return ""
	}
	return fmt.Sprintf("00-%x-%x-%x", t[:16], t[16:24], t[24:])
}

func appendExtension(b []byte, t Trace) []byte {
	if t == (Trace{}) {
		return append(b, noExtension...)
	}
	b = append(b, byte(traceField), traceTag, byte(len(t)))
	return append(b, t[:]...)
}

// extension reads the fields of an extension that are known.
func (d *decoder) extension(r *Record) {
	for b := d.take(d.count()); len(b) >= 2 && int(b[1]) <= len(b)-2; b = b[2+int(b[1]):] {
		content := b[2 : 2+int(b[1])]
		if b[0] == traceTag && len(content) == len(r.Trace) && !hasNoID(content) {
			r.Trace = Trace(content)
		}
	}
}
