package keyfunc

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// skipParameters scans the parameters of an Item, RFC 9651, section 4.2.3.2.
func skipParameters(s string) (rest string, ok bool) {
	for strings.HasPrefix(s, ";") {
		s = strings.TrimLeft(s[1:], " ")
		if s == "" || !isLower(s[0]) && s[0] != '*' {
			return "", false
		}
		s = skip(s, isKeyChar)
		if strings.HasPrefix(s, "=") {
			if s, ok = skipBareItem(s[1:]); !ok {
				return "", false
			}
		}
	}
	return s, true
}

// skipBareItem scans a Bare Item, section 4.2.3.1.
func skipBareItem(s string) (rest string, ok bool) {
	if s == "" {
		return "", false
	}
	switch c := s[0]; {
	case c == '-' || isDigit(c):
		rest, _, ok = skipNumber(s)
		return rest, ok
	case c == '"':
		_, _, rest, ok = scanString(s)
		return rest, ok
	case c == '*' || isAlpha(c):
		return skip(s, isTokenChar), true
	case c == ':':
		return skipBytes(s[1:])
	case c == '?':
		return s[min(2, len(s)):], strings.HasPrefix(s, "?0") || strings.HasPrefix(s, "?1")
	case c == '@':
		rest, decimal, ok := skipNumber(s[1:])
		return rest, ok && !decimal
	case c == '%':
		return skipDisplay(s[1:])
	}
	return "", false
}

// skipNumber scans a number, section 4.2.4: an Integer of at most 15 digits, or a Decimal of at most 12 digits, a
// point, and 1 to 3 digits.
func skipNumber(s string) (rest string, decimal, ok bool) {
	s = strings.TrimPrefix(s, "-")
	rest = skip(s, isDigit)
	whole := len(s) - len(rest)
	if !strings.HasPrefix(rest, ".") {
		return rest, false, 1 <= whole && whole <= 15
	}
	s, rest = rest[1:], skip(rest[1:], isDigit)
	fraction := len(s) - len(rest)
	return rest, true, 1 <= whole && whole <= 12 && 1 <= fraction && fraction <= 3
}

// skipBytes scans the rest of a Byte Sequence, section 4.2.7, after its first colon. Padding is optional; it must be at
// the end and not too long.
func skipBytes(s string) (rest string, ok bool) {
	encoded, rest, ok := strings.Cut(s, ":")
	data := strings.TrimRight(encoded, "=")
	padding := len(encoded) - len(data)
	last := len(data) % 4 // characters in the last group of four
	validLength := last != 1 && padding <= (4-last)%4
	return rest, ok && validLength && skip(data, isBase64) == ""
}

// skipDisplay scans the rest of a Display String, section 4.2.10, after its percent sign: a quoted string whose octets
// are UTF-8 after percent-decoding.
func skipDisplay(s string) (rest string, ok bool) {
	s, isQuoted := strings.CutPrefix(s, `"`)
	text, rest, isClosed := strings.Cut(s, `"`)
	for i := range len(text) - 2 {
		if text[i] == '%' && (isUpper(text[i+1]) || isUpper(text[i+2])) {
			return "", false
		}
	}
	decoded, err := url.PathUnescape(text)
	return rest, isQuoted && isClosed && skip(text, isPrintable) == "" && err == nil && utf8.ValidString(decoded)
}

// skip returns s without its leading bytes that are in the class.
func skip(s string, in func(byte) bool) string {
	i := 0
	for i < len(s) && in(s[i]) {
		i++
	}
	return s[i:]
}

// isToken reports whether s is a token, RFC 9110, section 5.6.2. Every field name is one.
func isToken(s string) bool { return s != "" && skip(s, isTChar) == "" }

func isTChar(c byte) bool {
	return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func isTokenChar(c byte) bool { return isTChar(c) || c == ':' || c == '/' }
func isKeyChar(c byte) bool {
	return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0
}
func isBase64(c byte) bool { return isAlpha(c) || isDigit(c) || c == '+' || c == '/' }
func isAlpha(c byte) bool  { return isLower(c) || isUpper(c) }
func isLower(c byte) bool  { return 'a' <= c && c <= 'z' }
func isUpper(c byte) bool  { return 'A' <= c && c <= 'Z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
