package keyfunc

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// The scanners of this file scan one item of RFC 9651 at the start of s and return the rest. ok is false if s does not
// start with that item. Only a Display String allocates.

const (
	digits     = "0123456789"
	lower      = "abcdefghijklmnopqrstuvwxyz"
	upper      = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	tokenChars = lower + upper + digits + "!#$%&'*+-.^_`|~" // tchar of RFC 9110, section 5.6.2
)

// cutString scans a String, section 4.2.5. s begins with its first quote, and escaped is the text between the quotes.
func cutString(s string) (escaped, rest string, ok bool) {
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return s[1:i], s[i+1:], true
		case c == '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", "", false
			}
		case c < ' ' || c > '~':
			return "", "", false
		}
	}
	return "", "", false
}

// skipParameters scans the parameters of an Item, section 4.2.3.2.
func skipParameters(s string) (rest string, ok bool) {
	for strings.HasPrefix(s, ";") {
		s = strings.TrimLeft(s[1:], " ")
		if !beginsWith(s, lower+"*") {
			return "", false
		}
		s = strings.TrimLeft(s, lower+digits+"_-.*")
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
	switch {
	case beginsWith(s, digits+"-"):
		rest, _, ok = skipNumber(s)
	case beginsWith(s, `"`):
		_, rest, ok = cutString(s)
	case beginsWith(s, lower+upper+"*"):
		rest, ok = strings.TrimLeft(s, tokenChars+":/"), true
	case beginsWith(s, ":"):
		rest, ok = skipBytes(s[1:])
	case strings.HasPrefix(s, "?0"), strings.HasPrefix(s, "?1"):
		rest, ok = s[2:], true
	case beginsWith(s, "@"):
		var isDecimal bool
		rest, isDecimal, ok = skipNumber(s[1:])
		ok = ok && !isDecimal
	case beginsWith(s, "%"):
		rest, ok = skipDisplay(s[1:])
	}
	return rest, ok
}

// skipNumber scans a number, section 4.2.4: an Integer of at most 15 digits, or a Decimal of at most 12 digits, a
// point, and 1 to 3 digits.
func skipNumber(s string) (rest string, isDecimal, ok bool) {
	s = strings.TrimPrefix(s, "-")
	rest = strings.TrimLeft(s, digits)
	whole := len(s) - len(rest)
	if !strings.HasPrefix(rest, ".") {
		return rest, false, 1 <= whole && whole <= 15
	}
	s, rest = rest[1:], strings.TrimLeft(rest[1:], digits)
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
	return rest, ok && validLength && strings.TrimLeft(data, lower+upper+digits+"+/") == ""
}

// skipDisplay scans the rest of a Display String, section 4.2.10, after its percent sign: a quoted string whose octets
// are UTF-8 after percent-decoding.
func skipDisplay(s string) (rest string, ok bool) {
	s, isQuoted := strings.CutPrefix(s, `"`)
	text, rest, isClosed := strings.Cut(s, `"`)
	for i := range len(text) - 2 {
		if text[i] == '%' && strings.ContainsAny(text[i+1:i+3], upper) {
			return "", false
		}
	}
	decoded, err := url.PathUnescape(text)
	return rest, isQuoted && isClosed && arePrintable(text) && err == nil && utf8.ValidString(decoded)
}

// beginsWith reports whether the first character of s is one of chars.
func beginsWith(s, chars string) bool { return s != "" && strings.IndexByte(chars, s[0]) >= 0 }
