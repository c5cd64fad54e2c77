package keyfunc

import "strings"

// The scanners of this file and of sfparams.go scan one item at the start of s and return the rest. ok is false if s
// does not start with that item. Only a display string allocates.

// scanString scans a String, RFC 9651, section 4.2.5. raw is the text between the quotes, with its escapes.
func scanString(s string) (raw string, escapes int, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", 0, "", false
	}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return s[1:i], escapes, s[i+1:], true
		case c == '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", 0, "", false
			}
			escapes++
		case !isPrintable(c):
			return "", 0, "", false
		}
	}
	return "", 0, "", false
}

// unescape removes the escapes from the raw string that scanString returned.
func unescape(raw string, escapes int) string {
	if escapes == 0 {
		return raw
	}
	var b strings.Builder
	b.Grow(len(raw) - escapes)
	for i := 0; i < len(raw); i++ {
		if raw[i] == '\\' {
			i++
		}
		b.WriteByte(raw[i])
	}
	return b.String()
}
