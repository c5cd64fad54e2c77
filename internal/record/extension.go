package record

import (
	"encoding/hex"
	"regexp"
)

// An extension is a list of fields, each of which is
//
//	tag          1 byte
//	length       1 byte
//	content      as many bytes
//
// No tag is 0. A reader skips a field with an unknown tag. From malformed bytes on it ignores the rest, so an extension
// never makes a record or a note unreadable.
const (
	traceTag     = 1 // in a record: a Trace
	journaledTag = 2 // in a note, without content: the run has a journal
	unknownTag   = 3 // in a record, without content: Record.Unknown

	journaledExtension = "\x02\x02\x00" // the length of the extension, journaledTag, the length of its content

	emptyField = 2
	traceField = emptyField + len(Trace{})
)

// Trace is the traceparent of a run (W3C Trace Context, section 3.2, version 00): trace-id, parent-id and trace-flags.
// The zero Trace means that there is none: an id of zeros is invalid.
type Trace [16 + 8 + 1]byte

var traceparent = regexp.MustCompile("^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$")

// ParseTrace returns a traceparent of version 00 as a Trace, and the zero Trace for anything else.
func ParseTrace(text string) (t Trace) {
	parts := traceparent.FindStringSubmatch(text)
	if parts == nil {
		return Trace{}
	}
	b, err := hex.DecodeString(parts[1] + parts[2] + parts[3])
	if err != nil || hasNoID(b) {
		return Trace{}
	}
	return Trace(b)
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
	h := hex.EncodeToString(t[:])
	return "00-" + h[:32] + "-" + h[32:48] + "-" + h[48:]
}

// appendExtension appends the extension of r.
func appendExtension(b []byte, r *Record) []byte {
	lengthAt := len(b)
	b = append(b, noExtension...)
	if r.Trace != (Trace{}) {
		b = append(append(b, traceTag, byte(len(r.Trace))), r.Trace[:]...)
	}
	if r.Unknown {
		b = append(b, unknownTag, 0)
	}
	b[lengthAt] = byte(len(b) - lengthAt - len(noExtension))
	return b
}

// readExtension reads the fields of a record's extension that are known.
func (r *Record) readExtension(extension []byte) {
	tag, content, rest := cutField(extension)
	for ; tag != 0; tag, content, rest = cutField(rest) {
		switch {
		case tag == traceTag && len(content) == len(r.Trace) && !hasNoID(content):
			r.Trace = Trace(content)
		case tag == unknownTag:
			r.Unknown = true
		}
	}
}

// isJournaled reports whether the extension of a note has the field of journaledTag.
func isJournaled(extension []byte) bool {
	tag, _, rest := cutField(extension)
	for tag != 0 && tag != journaledTag {
		tag, _, rest = cutField(rest)
	}
	return tag == journaledTag
}

// cutField returns the first field of an extension and the rest after it. The tag is 0 if b does not begin with a
// field.
func cutField(b []byte) (tag byte, content, rest []byte) {
	if len(b) < 2 || int(b[1]) > len(b)-2 {
		return 0, nil, nil
	}
	end := 2 + int(b[1])
	return b[0], b[2:end], b[end:]
}
