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

// SumBody is the SHA-256 of fields, which may be none and must be written as AppendPart does, the media type and the
// body: the type without its parameters, a multipart body part by part. A client that encodes the same form again
// chooses another boundary, and sends the same request.
//
// The preamble before the first part and the epilogue after the last are not parts, and do not
// count (RFC 2046, section 5.1.1). A multipart inside a part is content, its boundary included.
//
// A body that does not parse as multipart, breaks off, or has more than 1000 parts, is written as it is, boundary and all, and
// never hashes like a parsed one. SumBody takes any input, in linear time; it needs memory for the header
// of one part at a time. It may use what lies behind fields in its array.
func SumBody(fields []byte, contentType string, body []byte) (sum [sha256.Size]byte) {
	head, rest := appendBody(fields, contentType, body)
	h := sha256.New()
	h.Write(head)
	h.Write(rest)
	h.Sum(sum[:0])
	return sum
}

// appendBody appends the media type and the body, but for what is long: that is the rest.
func appendBody(dst []byte, contentType string, body []byte) (head, rest []byte) {
	mediaType := MediaType(contentType)
	dst = AppendPart(dst, mediaType)
	if strings.HasPrefix(mediaType, "multipart/") {
		if sum, ok := sumParts(contentType, body); ok {
			return AppendPart(append(dst, "parts"...), sum), nil
		}
	}
	return appendNumber(append(dst, "raw"...), len(body)), body
}

// MediaType is the type and subtype of a Content-Type, in lower case and without parameters: the
// text before the first semicolon, whether or not the rest of the field parses.
func MediaType(contentType string) string {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(mediaType))
}

// sumParts hashes as it reads, so that one part's header is in memory at a time. A part's content goes into a
// hash of its own, so that its length can stand before it though the part has not been read.
func sumParts(contentType string, body []byte) (sum []byte, ok bool) {
	_, params, err := mime.ParseMediaType(contentType)
	boundary := params["boundary"]
	if err != nil || boundary == "" || len(boundary) > maxBoundary {
		return nil, false
	}
	h, content := sha256.New(), sha256.New()
	var written []byte
	buf := make([]byte, 4096)
	parts := Parts(boundary, body)
	for n := 0; ; n++ {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			h.Write(appendNumber(written[:0], n))
			return h.Sum(nil), true
		}
		if err != nil || n == maxParts {
			return nil, false
		}
		content.Reset()
		size, err := io.CopyBuffer(content, part, buf)
		if err != nil {
			return nil, false
		}
		written = appendHeader(written[:0], part.Header)
		written = appendNumber(written, int(size))
		written = content.Sum(written)
		h.Write(written)
	}
}

// appendHeader appends the fields sorted by name; the values of one name keep their order, which may mean
// something.
func appendHeader(dst []byte, fields textproto.MIMEHeader) []byte {
	dst = appendNumber(dst, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		dst = AppendPart(dst, name)
		dst = appendNumber(dst, len(fields[name]))
		for _, value := range fields[name] {
			dst = AppendPart(dst, value)
		}
	}
	return dst
}
