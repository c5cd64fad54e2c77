package main

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
)

const keyHeader = "Idempotency-Key"

var (
	errNoKey  = errors.New("the Idempotency-Key header is missing")
	errBadKey = errors.New("the Idempotency-Key header must have one string of 1 to 255 printable ASCII characters")
)

// parameters are those after a structured-field string. They are ignored.
var parameters = regexp.MustCompile(`^(; *[a-z*][a-z0-9_.*-]*(=("[ -!#-\[\]-~]*"|[!#-+./:<=>?A-Z^_|~a-z0-9-]+))?)* *$`)

// parseKey returns the key of a request: a structured-field string (RFC 9651, section 3.3.3), or the same without quotes.
func parseKey(h http.Header) (string, error) {
	fields := h.Values(keyHeader)
	if len(fields) == 0 {
		return "", errNoKey
	}
	if len(fields) > 1 {
		return "", errBadKey
	}
	return parseField(fields[0])
}

func parseField(field string) (string, error) {
	key, ok := strings.Trim(field, " "), true
	if strings.HasPrefix(key, `"`) {
		key, ok = unquote(key)
	} else {
		ok = !strings.ContainsAny(key, ` ",;\`)
	}
	if !ok || len(key) < 1 || len(key) > 255 || strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' }) {
		return "", errBadKey
	}
	return key, nil
}

// unquote returns what is between the quotes of a structured-field string.
func unquote(field string) (string, bool) {
	var key strings.Builder
	for i := 1; i < len(field); i++ {
		switch c := field[i]; c {
		case '"':
			return key.String(), parameters.MatchString(field[i+1:])
		case '\\':
			i++
			if i == len(field) || field[i] != '"' && field[i] != '\\' {
				return "", false
			}
			key.WriteByte(field[i])
		default:
			key.WriteByte(c)
		}
	}
	return "", false
}
