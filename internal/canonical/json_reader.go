package canonical

import (
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonReader reads the tokens of a JSON text that is valid.
type jsonReader struct {
	rest      []byte // of the text
	unescaped []byte // memory for a string that has escapes
	unclear   bool   // something was met that two parsers may understand differently; never reset
}

// skipSpace skips white space. A value or a closing bracket follows, or nothing.
func (r *jsonReader) skipSpace() {
	for len(r.rest) > 0 && isSpace(r.rest[0]) {
		r.rest = r.rest[1:]
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// takes skips white space and one byte, if that is c. It reports whether it was.
func (r *jsonReader) takes(c byte) bool {
	r.skipSpace()
	if r.rest[0] != c {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

// literal reads a number, true, false or null.
func (r *jsonReader) literal() []byte {
	n := 0
	for n < len(r.rest) && !isSpace(r.rest[n]) && r.rest[n] != ',' && r.rest[n] != ']' && r.rest[n] != '}' {
		n++
	}
	literal := r.rest[:n]
	r.rest = r.rest[n:]
	return literal
}

// text reads a string and returns it without escapes. The result is valid until the next call.
func (r *jsonReader) text() []byte {
	r.rest = r.rest[1:]
	n := 0
	for r.rest[n] != '"' && r.rest[n] != '\\' {
		n++
	}
	plain := r.rest[:n]
	if r.rest = r.rest[n:]; r.rest[0] == '"' {
		r.rest = r.rest[1:]
		return plain
	}
	r.unescaped = append(r.unescaped[:0], plain...)
	for r.rest[0] != '"' {
		if r.rest[0] == '\\' {
			r.escape()
			continue
		}
		r.unescaped = append(r.unescaped, r.rest[0])
		r.rest = r.rest[1:]
	}
	r.rest = r.rest[1:]
	return r.unescaped
}

// escape reads one escape sequence, or two that are a surrogate pair, into unescaped.
func (r *jsonReader) escape() {
	c := r.rest[1]
	if c != 'u' {
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		}
		r.rest, r.unescaped = r.rest[2:], append(r.unescaped, c)
		return
	}
	char := r.unit()
	if utf16.IsSurrogate(char) {
		after, low := r.rest, rune(-1)
		if r.rest[0] == '\\' && r.rest[1] == 'u' {
			low = r.unit()
		}
		if char = utf16.DecodeRune(char, low); char == unicode.ReplacementChar {
			r.rest, r.unclear = after, true // as encoding/json, which takes half of a pair alone for U+FFFD
		}
	}
	r.unescaped = utf8.AppendRune(r.unescaped, char)
}

// unit reads one escape sequence \uXXXX.
func (r *jsonReader) unit() rune {
	n, _ := strconv.ParseUint(string(r.rest[2:6]), 16, 16) // the text is valid
	r.rest = r.rest[6:]
	return rune(n)
}

// appendFolded appends name so that two names are the same if they differ only in case, as [strings.EqualFold] compares
// them: each character becomes the least of those that it equals.
func appendFolded(dst, name []byte) []byte {
	for _, c := range string(name) {
		least := c
		for other := unicode.SimpleFold(c); other != c; other = unicode.SimpleFold(other) {
			least = min(least, other)
		}
		dst = utf8.AppendRune(dst, least)
	}
	return dst
}
