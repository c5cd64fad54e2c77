package keyfunc

import (
	"net/http"
	"strings"

	"github.com/onceguard/onceguard/internal/option"
)

// Header reads the key from a header field. The case of the name does not matter, that of the key does.
//
// The value is a quoted string, "abc", as in RFC 9651, section 4.2.5, and
// draft-ietf-httpapi-idempotency-key-header-07, section 2.1. (That Internet-Draft expired on 2026-04-18 and has not
// become an RFC.) Its parameters are checked and ignored. Many clients send abc without quotes, and Header accepts that
// as the same key if it has no spaces, quotes, backslashes, commas or semicolons.
//
// [MissingError]: the request has no such field. ErrInvalid: the field is empty, occurs more than once, has more than
// 255 characters, is with its parameters longer than 4 KiB, or is in neither form. Header panics unless name is a valid field name. The Func is safe for
// concurrent use.
func Header(name string) Func {
	name = option.FieldName("keyfunc.Header", name)
	place := "header " + name
	missing := error(MissingError{In: "header", Name: name})
	return func(r *http.Request) (string, error) {
		lines := r.Header[name]
		if len(lines) == 0 {
			return "", missing
		}
		if len(lines) > 1 {
			return "", invalid(place, problemTwice)
		}
		key, problem := parseKey(lines[0])
		if problem != "" {
			return "", invalid(place, problem)
		}
		return key, nil
	}
}

// maxLine is the greatest length of a field line in bytes, with the parameters of the key.
const maxLine = 4 << 10

// parseKey parses one field line, in linear time. It returns either a key or a problem.
func parseKey(line string) (key, problem string) {
	if len(line) > maxLine {
		return "", problemLong
	}
	line = strings.Trim(line, " ")
	if strings.HasPrefix(line, `"`) {
		return parseQuoted(line)
	}
	return parseBare(line)
}

// parseQuoted parses an Item that is a String, RFC 9651, section 4.2.3.
func parseQuoted(line string) (key, problem string) {
	escaped, rest, ok := cutString(line)
	if !ok {
		return "", "is not a string as in RFC 9651"
	}
	if rest != "" && !parameters.MatchString(rest) {
		return "", "has text after the string that is not a parameter"
	}
	if key = escaped; strings.Contains(key, `\`) { // Replace always allocates
		key = unescape.Replace(key)
	}
	switch n := len(key); {
	case n == 0:
		return "", problemEmpty
	case n > maxLen:
		return "", problemLong
	}
	return key, ""
}

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

// unescape removes the escapes from a String.
var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// parseBare accepts a line that is one plain word. It refuses a comma, which may come from a proxy that merged two
// lines, a semicolon, which may begin parameters, and quotes and backslashes, which are part of some quoting. To take
// them into the key would be a guess, and another hop may guess differently: two keys for one request.
func parseBare(line string) (key, problem string) {
	if line == "" {
		return "", problemEmpty
	}
	if len(line) > maxLen {
		return "", problemLong
	}
	for i := range len(line) {
		switch c := line[i]; {
		case c <= ' ' || c > '~':
			return "", "has a character outside 0x21-0x7E and is not quoted"
		case c == '"', c == '\'', c == '\\', c == ',', c == ';':
			return "", "is neither a quoted string nor a bare word"
		}
	}
	return line, ""
}
