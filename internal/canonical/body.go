package canonical

import (
	"crypto/sha256"
	"io"
	"maps"
	"mime"
	"net/textproto"
	"slices"
	"strings"
)

// maxBoundary is the length of the longest boundary, RFC 2046, section 5.1.1.
const maxBoundary = 70

// maxParts bounds the work that a small body of many empty parts can make. It is what net/http takes.
const maxParts = 1000

// Body writes the media type and the body: the type without its parameters, a multipart body part by part.
// A client that encodes the same form again chooses another boundary, and sends the same request.
//
// The preamble before the first part and the epilogue after the last are not parts, and do not
// count (RFC 2046, section 5.1.1). A multipart inside a part is content, its boundary included.
//
// A body that does not parse as multipart, breaks off, or has more than 1000 parts, is written as it is, boundary and all, and
// never hashes like a parsed one. Body takes any input, in linear time; it needs memory for the header
// of one part at a time.
func (h *Hash) Body(contentType string, body []byte) {
	mediaType := MediaType(contentType)
	h.Field(mediaType)
	if strings.HasPrefix(mediaType, "multipart/") {
		if sum, ok := sumParts(contentType, body); ok {
			h.Field("parts")
			h.FieldBytes(sum)
			return
		}
	}
	h.Field("raw")
	h.FieldBytes(body)
}

// MediaType is the type and subtype of a Content-Type, in lower case and without parameters: the
// text before the first semicolon, whether or not the rest of the field parses.
func MediaType(contentType string) string {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(mediaType))
}

// sumParts has a hash of its own because whether the body parses is known only at its end, and what
// has been written to a hash cannot be taken back. A part's content goes into a third one, so that its
// length can stand before it though the part has not been read.
func sumParts(contentType string, body []byte) (sum []byte, ok bool) {
	_, params, err := mime.ParseMediaType(contentType)
	boundary := params["boundary"]
	if err != nil || boundary == "" || len(boundary) > maxBoundary {
		return nil, false
	}
	h, content := NewHash(), sha256.New()
	buf := make([]byte, 4096)
	parts := Parts(boundary, body)
	for n := 0; ; n++ {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			h.number(n)
			sum := h.Sum()
			return sum[:], true
		}
		if err != nil || n == maxParts {
			return nil, false
		}
		content.Reset()
		size, err := io.CopyBuffer(content, part, buf)
		if err != nil {
			return nil, false
		}
		h.header(part.Header)
		h.number(int(size))
		h.buf = content.Sum(h.buf)
	}
}

// header writes the fields sorted by name; the values of one name keep their order, which may mean
// something.
func (h *Hash) header(fields textproto.MIMEHeader) {
	h.number(len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		h.Field(name)
		h.number(len(fields[name]))
		for _, value := range fields[name] {
			h.Field(value)
		}
	}
}
