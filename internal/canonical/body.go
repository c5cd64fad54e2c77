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

// maxBoundary is the greatest length of a boundary, RFC 2046, section 5.1.1.
const maxBoundary = 70

// maxParts bounds the work for a small body of many empty parts. net/http has the same limit.
const maxParts = 1000

// SumBody returns the SHA-256 of fields, the media type without its parameters, and the body. AppendPart must have
// written the fields, of which there may be none. SumBody may overwrite the spare capacity of fields.
//
// A multipart body is hashed part by part, without its boundary: a client that encodes the same form again chooses
// another boundary, but sends the same request. The preamble and the epilogue do not count (RFC 2046, section 5.1.1). A
// multipart inside a part is content, its boundary included.
//
// A multipart body that is malformed, truncated, or has more than 1000 parts is hashed as raw bytes, boundary included.
// Its hash never equals that of a parsed body. SumBody accepts any input and takes linear time. It needs memory for the
// header of one part at a time.
func SumBody(fields []byte, contentType string, body []byte) (sum [sha256.Size]byte) {
	head, rest := appendBody(fields, contentType, body)
	h := sha256.New()
	h.Write(head)
	h.Write(rest)
	h.Sum(sum[:0])
	return sum
}

// appendBody appends the media type and the body. A raw body is not copied: it is returned as rest.
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

// MediaType returns the type and subtype of a Content-Type, in lower case: the text before the first semicolon, even if
// the parameters are malformed.
func MediaType(contentType string) string {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(mediaType))
}

// sumParts hashes the parts while it reads them, so that only one part's header is in memory at a time. The length of a
// part precedes its content but is known only at its end. So the content is hashed separately.
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

// appendHeader appends the fields, sorted by name. The values of one name keep their order, which may matter.
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
