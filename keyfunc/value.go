package keyfunc

import (
	"fmt"
	"strings"
)

// maxLen is the greatest length of a key, in characters, after unescaping. Neither RFC 9651 nor the Idempotency-Key
// draft sets a limit.
const maxLen = 255

const (
	problemEmpty   = "is empty"
	problemTwice   = "occurs more than once"
	problemLong    = "is longer than 255 characters"
	problemCharset = "has a character outside 0x20-0x7E"
)

// invalid returns an ErrInvalid that names the place and the problem, never the value.
func invalid(place, problem string) error {
	return fmt.Errorf("%w: %s %s", ErrInvalid, place, problem)
}

// single returns the value of a form field or query parameter, or missing if there is none. It accepts the same
// characters as a header's string, so that a client can send the same key either way.
func single(place string, missing error, values []string) (string, error) {
	if len(values) == 0 {
		return "", missing
	}
	if len(values) > 1 {
		return "", invalid(place, problemTwice)
	}
	switch value := values[0]; {
	case value == "":
		return "", invalid(place, problemEmpty)
	case len(value) > maxLen:
		return "", invalid(place, problemLong)
	case !arePrintable(value):
		return "", invalid(place, problemCharset)
	default:
		return value, nil
	}
}

// arePrintable reports whether the characters of s are all printable ASCII.
func arePrintable(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
}
