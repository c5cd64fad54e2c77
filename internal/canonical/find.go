package canonical

import (
	"bytes"
	"strconv"
)

// Find returns the value in text to which the reference tokens of a JSON Pointer lead, or nil if there is none. text must be
// valid JSON. twice is true if an object on the way has the name twice. Names that are equal under simple Unicode case
// folding count as one name that occurs twice, because encoding/json may fill a struct's field from either.
//
// Find takes time in proportion to the length of text times the number of tokens, and copies only strings with escapes.
func Find(text []byte, tokens []string) (value []byte, twice bool) {
	r := jsonReader{rest: text}
	value = r.skip()
	for _, token := range tokens {
		r.rest = value
		if value, twice = r.find([]byte(token)); value == nil || twice {
			break
		}
	}
	return value, twice
}

// find is Find for one token, in the value that r reads next. An index has no sign and no leading zero (RFC 6901, section
// 4).
func (r *jsonReader) find(token []byte) (found []byte, twice bool) {
	opening := r.rest[0]
	if opening != '{' && opening != '[' {
		return nil, false
	}
	r.rest = r.rest[1:]
	seen := 0
	var digits [20]byte
	for n := 0; !r.takes(opening + 2); n++ { // in ASCII, '}' is '{' + 2, and ']' is '[' + 2
		r.takes(',')
		var name []byte
		if opening == '{' {
			r.skipSpace()
			name = r.text()
			r.takes(':')
		} else {
			name = strconv.AppendInt(digits[:0], int64(n), 10)
		}
		matches := bytes.Equal(name, token) // before skip, which uses the memory of name
		if bytes.EqualFold(name, token) {
			seen++
		}
		if value := r.skip(); matches {
			found = value
		}
	}
	return found, seen > 1
}

// skip reads the next value and returns its text.
func (r *jsonReader) skip() []byte {
	r.skipSpace()
	text := r.rest
	for depth := 0; ; {
		r.skipSpace()
		switch r.rest[0] {
		case '{', '[':
			depth++
			r.rest = r.rest[1:]
		case '}', ']':
			depth--
			r.rest = r.rest[1:]
		case ',', ':':
			r.rest = r.rest[1:]
		case '"':
			r.text()
		default:
			r.literal()
		}
		if depth == 0 {
			return text[:len(text)-len(r.rest)]
		}
	}
}
