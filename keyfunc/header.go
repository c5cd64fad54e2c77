package keyfunc

import (
	"fmt"
	"net/http"
	"strings"
)

// Header takes the key from a header field. The name's case does not matter, the key's does.
//
// The field's value is a string of RFC 9651, section 4.2.5, as
// draft-ietf-httpapi-idempotency-key-header-07, section 2.1, has it: "abc" in quotes, parsed strictly, its
// parameters checked and ignored. The bare form that many clients send, abc without quotes, is
// the same key; it has no spaces, quotes, backslashes, commas or semicolons.
//
// [MissingError]: there is no such field. ErrInvalid: it is empty, stands on more than one line, is longer
// than 255 characters, or fits neither form. Header panics unless name is a valid field name.
// The Func is safe for concurrent use.
func Header(name string) Func {
	if !isToken(name) {
		panic(fmt.Sprintf("keyfunc.Header: %q is not the name of a header field", name))
	}
	name = http.CanonicalHeaderKey(name)
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

// parseKey reads one field line in linear time. It returns either a key or a problem.
func parseKey(line string) (key, problem string) {
	line = strings.Trim(line, " ")
	if strings.HasPrefix(line, `"`) {
		return parseQuoted(line)
	}
	return parseBare(line)
}

// parseQuoted reads an Item of RFC 9651, section 4.2.3, that is a String.
func parseQuoted(line string) (key, problem string) {
	raw, escapes, rest, ok := scanString(line)
	if !ok {
		return "", "is not a string of RFC 9651"
	}
	if rest, ok = skipParameters(rest); !ok || rest != "" {
		return "", "has something after the string that is not a parameter"
	}
	switch n := len(raw) - escapes; {
	case n == 0:
		return "", problemEmpty
	case n > maxLen:
		return "", problemLong
	}
	return unescape(raw, escapes), ""
}

// parseBare takes the line as it stands, if nothing in it suggests that the sender meant more than
// one plain word. A comma may join two field lines that a proxy merged, a semicolon may begin
// parameters, quotes and backslashes belong to some quoting: taking them as part of the key would be
// a guess, and a guess that another hop makes differently is two keys for one request.
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
			return "", "has a character outside of 0x21-7E and no quotes around it"
		case c == '"', c == '\'', c == '\\', c == ',', c == ';':
			return "", "is neither one string of RFC 9651 nor one bare word"
		}
	}
	return line, ""
}
